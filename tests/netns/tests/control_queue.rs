//! `virtio-user:` with `vhost-user:...,ctrl=on`: a request at the driver's end becomes a
//! control-queue command, which takes effect at the device's link. One process has both links, so
//! its control thread must not block on its own response.

use mqnet_testkit::{Control, Need, Running, Stream, World, has, until};

use crate::control_verbs::kernel_feature;

fn daemon(world: &World, control: &Control, packed: &str) -> Running {
    let (a, b, socket) = (world.a.name(), world.b.name(), world.socket().display().to_string());
    let text = format!(
        "[link.left]\na = 'tap:a,netns={a},address=10.0.0.1/24'\n\
         b = 'virtio-user:{socket},packed={packed},name=nl'\nchannels = 2\n\
         [link.right]\na = 'tap:b,netns={b},address=10.0.0.2/24'\n\
         b = 'vhost-user:{socket},queues=4,ctrl=on,name=nr'\n"
    );
    let file = control.write("mqnet.toml", &text).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    control.wait_up("left");
    control.wait_up("right");
    daemon
}

fn combined(control: &Control, dev: &str) -> u64 {
    control.json(&["ethtool", "--json", "-l", dev])[0]["combined"].as_u64().expect("a count")
}

// Goal: changes of channels and offloads at the driver's end apply at the device's end, and to the
// frames that the kernel sends into its TAP. Streams in both directions lose nothing.
#[test]
fn the_driver_commands_the_device() {
    if !has(&[Need::Root, Need::Program("ethtool")]) {
        return;
    }
    for packed in ["off", "on"] {
        let (world, control) = (World::create(), Control::create());
        let daemon = daemon(&world, &control, packed);
        until("two channels", || (combined(&control, "b") == 2).then_some(()));
        let downs = || daemon.err().matches("down: ").count();
        let before = downs();
        let there = Stream::start(&world.a, &world.b, "10.0.0.2");
        let back = Stream::start(&world.b, &world.a, "10.0.0.1");
        for channels in [4, 1, 3, 2] {
            control.ok(&["ethtool", "-L", "a", "combined", &channels.to_string()]);
            until("the device's channels", || (combined(&control, "b") == channels).then_some(()));
            there.wait_more(1 << 20);
            back.wait_more(1 << 20);
        }
        for state in ["off", "on"] {
            control.ok(&["ethtool", "-K", "a", "tso", state]);
            until("the kernel's side", || {
                let now = kernel_feature(&world.b, "b", "tx-tcp-segmentation");
                (now == state).then_some(())
            });
            there.wait_more(1 << 20);
            back.wait_more(1 << 20);
        }
        assert!(there.finish() > 0 && back.finish() > 0);
        assert_eq!(downs(), before, "a link was down: {}", daemon.err());
        daemon.stop();
    }
}
