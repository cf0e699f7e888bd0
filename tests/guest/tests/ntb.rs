//! The kernel's NTB drivers on an emulated endpoint of mqnet.

mod channels;
mod life;
mod netdev;
mod shown;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use mqnet_guest::{Guest, Kernel};
use mqnet_ntb::hw::vfio_user::{BoardModel, VfioUser, VfioUserConfig, qemu_device};
use mqnet_ntb::hw::{Hw, HwLink};
use mqnet_shmem::AtomicTable;
use mqnet_sysio::clock;
use mqnet_sysio::epoll::{Epoll, Interest};
use mqnet_sysio::listen::Access;

use crate::there;

const WINDOW: u32 = 2 << 20;

/// True if guests with NTB drivers can be started; otherwise skips the test and returns false.
#[track_caller]
fn there_with_ntb() -> bool {
    there(Kernel::V7_3)
        && match mqnet_guest::ntb::prepare() {
            Ok(()) => true,
            Err(e) => mqnet_testkit::skip(&format!("the kernel's NTB drivers: {e}")),
        }
}

fn config(endpoint: BoardModel) -> VfioUserConfig {
    let socket = format!("mqnet-ntb-{endpoint}-{}", std::process::id());
    VfioUserConfig {
        path: std::env::temp_dir().join(socket),
        access: Access::default(),
        endpoint,
        windows: endpoint.windows_max(),
        window: WINDOW,
        vectors: 32,
    }
}

/// Far end of a bridge. Each operation of the guest has a visible effect:
///
/// - A written scratchpad: the complement of its value in the scratchpad of the opposite direction.
/// - A doorbell: the doorbell of the same number.
/// - First bytes of a window: their complement in the guest's memory.
struct Mirror {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Mirror {
    fn start(config: &VfioUserConfig) -> Self {
        let hw = VfioUser::new(config).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || mirror(hw, &stop)
        });
        Self { stop, thread: Some(thread) }
    }

    /// Stops the far end; returns the link states in the order of their changes.
    fn stop(mut self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn mirror(mut hw: VfioUser, stop: &AtomicBool) -> Vec<String> {
    let rung = Arc::new(Mutex::new(Vec::new()));
    let doorbells = Epoll::new().unwrap();
    for bit in 0..30 {
        let event = hw.doorbell_event(bit).unwrap();
        use std::os::fd::AsFd;
        doorbells.add(event.as_fd(), Interest::ReadableEdge, bit as u64).unwrap();
    }
    let mut states = Vec::new();
    let mut was_up = false;
    while !stop.load(Ordering::Relaxed) {
        let link = hw.poll_link(clock::monotonic());
        let text = format!("{link:?}");
        if states.last() != Some(&text) {
            states.push(text);
        }
        let is_up = matches!(link, HwLink::Up(_));
        if is_up {
            let transport = hw.transport().unwrap();
            if !was_up {
                (0..30).for_each(|bit| transport.doorbell_trap(bit).unwrap().arm());
            }
            for pad in 0..transport.spad_count() {
                let value = hw.spad_read(pad);
                if value != 0 {
                    hw.peer_spad_write(pad, !value);
                }
            }
            doorbells
                .wait(Some(Duration::ZERO), |ready| rung.lock().unwrap().push(ready.key))
                .unwrap();
            for bit in rung.lock().unwrap().drain(..) {
                transport.doorbell_trap(bit as usize).unwrap().arm();
                hw.peer_doorbell(bit as usize).unwrap().ring().unwrap();
            }
            for index in 0..transport.window_count() {
                let window = transport.window(index).unwrap();
                let Some(outbound) = window.outbound else { continue };
                let inbound = AtomicTable::new(window.inbound, window.inbound_at, 4096).unwrap();
                let there = outbound.map.table(0, 4096, 4).unwrap();
                for at in [0, 4092] {
                    there
                        .word(at)
                        .store(!inbound.word(at).load(Ordering::SeqCst), Ordering::SeqCst);
                }
            }
        }
        was_up = is_up;
        std::thread::sleep(Duration::from_millis(1));
    }
    states
}

const LOAD: &str = "
cd /ntb
for module in ntb ntb_hw_epf ntb_transport ntb_tool; do insmod $module.ko || exit 1; done
lsmod
";

// Goal: the modules built from the kernel's source can be loaded into Debian's kernel.
#[test]
fn modules_load() {
    if !there_with_ntb() {
        return;
    }
    let guest = Guest::new(Kernel::V7_3, "ntb-modules").bare().with_ntb().memory(512);
    let outcome = guest.script("load", LOAD).run().unwrap();
    let output = &outcome.passed("load").unwrap().output;
    assert!(output.contains("ntb_transport"), "{output}");
}

/// Script that prints one line per operation: the name and the value that was read.
const TOOL: &str = r#"
for module in ntb ntb_hw_epf ntb_tool; do insmod /ntb/$module.ko || exit 1; done
cd /sys/kernel/debug/ntb_tool/* || { dmesg | tail -20; exit 1; }
wait_for() { for i in $(seq 100); do [ "$(eval "$1")" = "$2" ] && return; sleep 0.05; done; }
row() { echo "ROW $1 $2"; }
row valid-doorbells $(cat db_valid_mask)
row link-before $(cat peer0/link)
echo Y > link; echo Y > peer0/link_event
row link-up $(cat peer0/link)
for pad in 0 3 31; do
    row "peer-spad-$pad-zero" $(cat peer0/spad$pad)
    echo 0x0102030$((pad % 10)) > peer0/spad$pad
    row "peer-spad-$pad" $(cat peer0/spad$pad)
    wait_for "cat spad$pad" 0xfefdfcf$(printf %x $((15 - pad % 10)))
    row "own-spad-$pad" $(cat spad$pad)
done
echo 0x77 > spad5
row own-spad-written $(cat spad5)
for bit in 0 4 28; do
    mask=$(printf 0x%x $((1 << bit)))
    echo "s $mask" > peer_db
    wait_for "cat db" $mask
    row "doorbell-$bit" $(cat db)
    echo "c $mask" > db
    row "doorbell-$bit-cleared" $(cat db)
done
windows=$(ls -d peer0/mw_trans* | wc -l)
row windows $windows
for index in $(seq 0 $((windows - 1))); do
    echo 8192 > peer0/mw_trans$index || exit 1
    row "window-$index-max" $(sed -n 's/^Size Max *//p' peer0/mw_trans$index)
    echo 0:8192 > peer0/peer_mw_trans$index || exit 1
    row "window-$index-peer" $(sed -n 's/^Mapping Size *//p' peer0/peer_mw_trans$index)
    printf "\001\002\003\00$index" > peer0/peer_mw$index
    last=$(printf %x $((15 - index)))
    wait_for "head -c 4 peer0/mw$index | od -An -tx1 | tr -d ' '" fefdfcf$last
    row "window-$index" $(head -c 4 peer0/mw$index | od -An -tx1 | tr -d ' ')
    row "window-$index-end" $(tail -c +4093 peer0/mw$index | head -c 4 | od -An -tx1 | tr -d ' ')
done
# The tool of this kernel crashes when it is removed with windows that are set up.
for index in $(seq 0 $((windows - 1))); do
    echo 0 > peer0/mw_trans$index
    echo 0:0 > peer0/peer_mw_trans$index
    row "window-$index-removed" "$(ls peer0 | grep -c "mw$index$")"
done
echo Y > link; echo Y > peer0/link_event
row link-again $(cat peer0/link)
echo N > link; echo N > peer0/link_event
row link-down $(cat peer0/link)
cd /
rmmod ntb_tool ntb_hw_epf || exit 1
insmod /ntb/ntb_hw_epf.ko || exit 1
insmod /ntb/ntb_tool.ko
cd /sys/kernel/debug/ntb_tool/* || exit 1
echo Y > link; echo Y > peer0/link_event
row link-after-reload $(cat peer0/link)
grep -c ntb_epf /proc/interrupts
dmesg | grep -i -E 'ntb|epf' | grep -v -i -E 'taint|verification' || true
"#;

fn rows(output: &str) -> Vec<(&str, &str)> {
    let rows = output.lines().filter_map(|line| line.trim().strip_prefix("ROW "));
    rows.map(|row| row.split_once(' ').unwrap_or((row, ""))).collect()
}

fn tool_agrees(endpoint: BoardModel) {
    if !there_with_ntb() {
        return;
    }
    let config = config(endpoint);
    let mirror = Mirror::start(&config);
    let guest = Guest::new(Kernel::V7_3, &format!("ntb-tool-{endpoint}")).bare().with_ntb();
    let guest = guest.memory(512).cpus(1).qemu(&["-device", &qemu_device(&config.path)]);
    let outcome = guest.script("tool", TOOL).run();
    let states = mirror.stop();
    let outcome = outcome.unwrap_or_else(|e| panic!("{e}\n{states:#?}"));
    let output = &outcome.passed("tool").unwrap().output;
    let windows = endpoint.windows_max();
    let mut expected: Vec<(String, String)> = Vec::new();
    let mut expect = |name: &str, value: &str| expected.push((name.to_owned(), value.to_owned()));
    expect("valid-doorbells", "0x3fffffff");
    expect("link-before", "N");
    expect("link-up", "Y");
    for (pad, low) in [(0, "0"), (3, "3"), (31, "1")] {
        expect(&format!("peer-spad-{pad}-zero"), "0x0");
        expect(&format!("peer-spad-{pad}"), &format!("0x102030{low}"));
        let complement = !(0x0102_0300 + low.parse::<u32>().unwrap());
        expect(&format!("own-spad-{pad}"), &format!("{complement:#x}"));
    }
    expect("own-spad-written", "0x77");
    for bit in [0, 4, 28] {
        expect(&format!("doorbell-{bit}"), &format!("{:#x}", 1u32 << bit));
        expect(&format!("doorbell-{bit}-cleared"), "0x0");
    }
    expect("windows", &windows.to_string());
    let bar = |index: usize| match (endpoint, index) {
        // The driver reports the length of the whole BAR, which also contains the doorbells.
        (BoardModel::J721e, 0) => 2 * WINDOW,
        _ => WINDOW,
    };
    for index in 0..windows {
        expect(&format!("window-{index}-max"), &format!("{:#018x}", bar(index)));
        expect(&format!("window-{index}-peer"), &format!("{WINDOW:#018x}"));
        expect(&format!("window-{index}"), &format!("fefdfcf{:x}", 15 - index));
        expect(&format!("window-{index}-end"), "ffffffff");
    }
    for index in 0..windows {
        expect(&format!("window-{index}-removed"), "0");
    }
    expect("link-again", "Y");
    expect("link-down", "N");
    expect("link-after-reload", "Y");
    let found: Vec<(String, String)> =
        rows(output).into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    assert_eq!(found, expected, "{output}");
}

// Goal: the kernel's ntb_tool agrees with the device `rcar` on doorbells, scratchpads, windows and
// link.
#[test]
fn ntb_tool_agrees_with_rcar() {
    tool_agrees(BoardModel::Rcar);
}

// Goal: the kernel's ntb_tool agrees with the device `imx8` on doorbells, scratchpads, windows and
// link.
#[test]
fn ntb_tool_agrees_with_imx8() {
    tool_agrees(BoardModel::Imx8);
}

// Goal: the kernel's ntb_tool agrees with the device `j721e` on doorbells, scratchpads, windows and
// link.
#[test]
fn ntb_tool_agrees_with_j721e() {
    tool_agrees(BoardModel::J721e);
}
