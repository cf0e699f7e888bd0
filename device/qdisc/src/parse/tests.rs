use proptest::prelude::*;

use super::*;
use crate::kind::Env;
use crate::{DrrClass, Fifo, FqCodel, Handle, PRIOMAP, Params, Prio, Tbf};

const ENV: Env = Env { frame: 1514, channels: 4 };

fn read(text: &str) -> Result<Params, String> {
    let words = words(text);
    Params::parse(&words[0], &words[1..], None, ENV).map_err(|e| e.message)
}

fn change(old: &Params, options: &str) -> Result<Params, String> {
    Params::parse(old.kind(), &words(options), Some(old), ENV).map_err(|e| e.message)
}

fn refusal(text: &str) -> String {
    read(text).expect_err(text)
}

fn read_filter(text: &str, protocol: u16) -> Result<crate::filters::Plan, String> {
    let words = words(text);
    let known = Keys { protocol, handle: Some(Handle(7)) };
    filter(&words[0], &words[1..], known).map_err(|e| e.message)
}

// Goal: units have tc's values, in upper or lower case, with fractions; any other unit is rejected.
#[test]
fn units() {
    let rates = [
        ("8", 1),
        ("1000000", 125_000),
        ("1kbit", 125),
        ("1Kibit", 128),
        ("12.5mbit", 1_562_500),
        ("1gbit", 125_000_000),
        ("100tbit", 12_500_000_000_000),
        ("1bps", 1),
        ("1kbps", 1000),
        ("1kibps", 1024),
        ("2MBps", 2_000_000),
        ("1bit", 0),
    ];
    rates.iter().for_each(|(word, bytes)| assert_eq!(number::rate(word), Some(*bytes), "{word}"));
    let sizes = [
        ("10", 10),
        ("10b", 10),
        ("10k", 10_240),
        ("1.5K", 1536),
        ("2kb", 2048),
        ("1m", 1 << 20),
        ("3kbit", 384),
        ("1g", 1 << 30),
    ];
    sizes.iter().for_each(|(word, bytes)| assert_eq!(number::size(word), Some(*bytes), "{word}"));
    let times = [
        ("50", 50_000),
        ("50us", 50_000),
        ("5ms", 5_000_000),
        ("1.5s", 1_500_000_000),
        ("7ns", 7),
        ("0", 0),
    ];
    times.iter().for_each(|(word, ns)| assert_eq!(number::time(word), Some(*ns), "{word}"));
    for word in
        ["", "x", "-1", "+1", "1x", "k", ".", "1..2", "1e3", "0x10", "inf", "nan", "50%", "4g"]
    {
        assert_eq!(number::size(word), None, "{word}");
        assert_eq!(number::rate(word), None, "{word}");
        assert_eq!(number::time(word), None, "{word}");
    }
    assert_eq!((number::rate("999999999tbit"), number::time("5000s")), (None, None));
}

// Goal: plain numbers accept C's base prefixes and no sign; a mask may follow after a slash.
#[test]
fn plain_numbers() {
    let read = ["10", "0x1F", "017", "0", "4294967295"].map(|word| number::number(word).unwrap());
    assert_eq!(read, [10, 31, 15, 0, u32::MAX]);
    for word in ["", "-1", "+1", "x", "0x", "0x+1", "08", "4294967296", "1.5"] {
        assert_eq!(number::number(word), None, "{word}");
    }
    assert_eq!(number::masked("1/0xff"), Some((1, 255)));
    assert_eq!(number::masked("0x10"), Some((16, u32::MAX)));
    assert_eq!((number::masked("1/x"), number::decimal::<u16>("+1")), (None, None));
}

// Goal: handles and classes use tc's syntax: two hexadecimal halves, and either half may be
// omitted.
#[test]
fn handles() {
    let class = |word| number::class(word).map(|handle| handle.0);
    assert_eq!(class("1:2"), Some(0x1_0002));
    assert_eq!(
        (class("1:"), class(":a"), class("0xA:0xb")),
        (Some(0x1_0000), Some(10), Some(0xa_000b))
    );
    assert_eq!((class("12"), class("root"), class("none")), (Some(0x12), Some(u32::MAX), Some(0)));
    for word in ["", "x", "1:zz", "1:12345", "12345:1", "1:2:3", "+1:2", "1:-2"] {
        assert_eq!(class(word), None, "{word}");
    }
    let qdisc = |word| number::qdisc(word).map(|handle| handle.0);
    assert_eq!(
        (qdisc("1:"), qdisc("1"), qdisc("1:1")),
        (Some(0x1_0000), Some(0x1_0000), Some(0x1_0000))
    );
    assert_eq!((qdisc(":1"), qdisc("x"), qdisc("12345:")), (None, None, None));
}

// Goal: omitted options have Linux's defaults.
#[test]
fn defaults() {
    assert_eq!(read("pfifo"), Ok(Params::Pfifo(Fifo { limit: 1000 })));
    assert_eq!(read("bfifo"), Ok(Params::Bfifo(Fifo { limit: 1_514_000 })));
    assert_eq!(read("pfifo_fast"), Ok(Params::PfifoFast(Fifo { limit: 1000 })));
    assert_eq!(read("prio"), Ok(Params::Prio(Prio { bands: 3, priomap: PRIOMAP })));
    assert_eq!(read("fq_codel"), Ok(Params::FqCodel(FqCodel::default())));
    assert_eq!((read("drr"), read("mq")), (Ok(Params::Drr), Ok(Params::Mq)));
}

// Goal: tbf accepts rate and burst, a limit or a latency, and a peak rate with its own burst.
// `latency` becomes the limit that tc would send.
#[test]
fn tbf() {
    let tbf = |text: &str| match read(&format!("tbf {text}")) {
        Ok(Params::Tbf(Tbf { rate, burst, peakrate, mtu, limit })) => {
            (rate, burst, peakrate, mtu, limit)
        }
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(tbf("rate 1mbit burst 10k limit 20k"), (125_000, 10_240, 0, 0, 20_480));
    assert_eq!(tbf("rate 1mbit burst 10k latency 50ms").4, 10_240 + 6250);
    assert_eq!(tbf("rate 1mbit buffer 10k/8 latency 50").4, 10_240 + 6);
    let peak = "rate 1mbit maxburst 10k latency 10ms peakrate 2mbit minburst 1500";
    assert_eq!(tbf(peak), (125_000, 10_240, 250_000, 1500, 4000));
    assert_eq!(tbf("rate 100tbit burst 10mb latency 1000s").4, u32::MAX);
}

// Goal: errors of tbf have tc's texts.
#[test]
fn tbf_refusals() {
    let cases = [
        ("", "tbf: the \"rate\" parameter is mandatory"),
        ("rate x", "tbf: illegal value for \"rate\": \"x\""),
        ("rate 1mbit", "tbf: the \"burst\" parameter is mandatory"),
        ("rate 1bit burst 1 limit 1", "tbf: the \"rate\" parameter is mandatory"),
        ("rate 1mbit burst 10k", "tbf: either \"limit\" or \"latency\" is required"),
        ("rate 1mbit burst 10k limit 0", "tbf: either \"limit\" or \"latency\" is required"),
        ("rate 1mbit burst 10k/7 limit 1", "tbf: illegal value for \"burst\": \"10k/7\""),
        ("rate 1mbit rate 2mbit", "tbf: duplicate \"rate\" specification"),
        ("rate 1mbit burst 1g limit 4g", "tbf: illegal value for \"limit\": \"4g\""),
        ("foo", "tbf: unknown parameter \"foo\""),
        ("rate", "Command line is not complete. Try option \"help\""),
        (
            "rate 1mbit burst 10k limit 1k latency 5ms",
            "tbf: specifying both \"limit\" and \"latency\" is not allowed",
        ),
        (
            "rate 1mbit burst 10k limit 1k peakrate 2mbit",
            "tbf: when \"peakrate\" is specified, \"mtu\" must also be specified",
        ),
        (
            "rate 1mbit burst 10k limit 1k peakrate 1mbit mtu 1500",
            "tbf: peakrate must be greater than rate",
        ),
    ];
    cases.iter().for_each(|(text, error)| assert_eq!(refusal(&format!("tbf {text}")), *error));
}

// Goal: the kinds other than tbf reject the same values as tc or the kernel, with the same texts.
#[test]
fn refusals() {
    let cases = [
        ("pfifo limit", "Command line is not complete. Try option \"help\""),
        ("pfifo limit x", "pfifo: Illegal value for \"limit\": \"x\""),
        ("bfifo limit -1", "bfifo: Illegal value for \"limit\": \"-1\""),
        ("pfifo foo", "pfifo: unknown parameter \"foo\""),
        ("pfifo_fast limit 3", "qdisc 'pfifo_fast' does not support option parsing"),
        ("mq foo", "Unknown qdisc \"mq\", hence option \"foo\" is unparsable"),
        ("noqueue foo", "Unknown qdisc \"noqueue\", hence option \"foo\" is unparsable"),
        ("prio foo", "What is \"foo\"?"),
        ("prio bands x", "Illegal \"bands\": \"x\""),
        ("prio bands 1", "prio: bands must be 2 to 16"),
        ("prio bands 300", "prio: bands must be 2 to 16"),
        ("prio bands 2", "prio: priomap has band 2, of 2 bands"),
        ("prio priomap 7", "\"priomap\" element is out of bands"),
        ("prio priomap x", "Illegal \"priomap\" element: \"x\""),
        ("prio priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "\"priomap\" index > TC_PRIO_MAX=15"),
        ("drr foo", "What is \"foo\"?"),
        ("fq_codel flows 0", "fq_codel: flows must be 1 to 65536"),
        ("fq_codel flows 65537", "fq_codel: flows must be 1 to 65536"),
        ("fq_codel quantum 2000000", "Invalid quantum"),
        ("fq_codel target x", "Illegal \"target\": \"x\""),
        ("fq_codel ce_threshold", "Command line is not complete. Try option \"help\""),
        ("mqprio num_tc 20", "Number of traffic classes is outside valid range"),
        ("mqprio num_tc 0", "Number of traffic classes is outside valid range"),
        (
            "mqprio num_tc 2 map 7 queues 1@0 1@1",
            "Invalid traffic class in priority to traffic class mapping",
        ),
        (
            "mqprio num_tc 2 queues 1@0 1@1 1@2",
            "queues count/offset pair count 3 can not be higher than given num_tc 2",
        ),
        ("mqprio num_tc 2 queues 1@", "argument \"1@\" is wrong: unknown argument"),
        ("mqprio foo", "argument \"foo\" is wrong: unknown argument"),
        ("mqprio num_tc 2 queues 1@0 4@1", "Queues 4:1 for TC 1 exceed the 4 TX queues available"),
        ("mqprio num_tc 2 queues 2@0 2@1", "TC 0 queues 2@0 overlap with TC 1 queues 2@1"),
        ("mqprio num_tc 1", "No queues for TC 0 (set them with queues COUNT@FIRST ...)"),
        ("mqprio num_tc 1 queues 1@0 hw 1", "mqprio: there is no hardware to offload to; use hw 0"),
        ("nosuch", "Specified qdisc kind is unknown"),
    ];
    cases.iter().for_each(|(text, error)| assert_eq!(refusal(text), *error, "{text}"));
}

// Goal: a change treats omitted options as the kernel does: pfifo, fq_codel and drr classes keep
// them, prio resets them. The number of flows of fq_codel cannot be changed.
#[test]
fn changes() {
    let old = read("fq_codel limit 5 target 1ms noecn flows 7").unwrap();
    let Ok(Params::FqCodel(new)) = change(&old, "interval 9ms ecn") else { panic!() };
    let kept = FqCodel { limit: 5, flows: 7, target: 1_000_000, ..FqCodel::default() };
    assert_eq!(new, FqCodel { interval: 9_000_000, ecn: true, ..kept });
    assert_eq!(change(&old, "flows 7"), Ok(old.clone()));
    assert_eq!(
        change(&old, "flows 8").unwrap_err(),
        "fq_codel: flows cannot be changed, only set anew"
    );
    let Ok(Params::FqCodel(new)) = change(&old, "quantum 1 drop_batch 0 memory_limit 3g") else {
        panic!()
    };
    assert_eq!((new.quantum, new.drop_batch, new.memory_limit), (256, 1, 1 << 31));
    let prio = read("prio bands 5").unwrap();
    assert_eq!(change(&prio, ""), read("prio"));
    let fifo = read("pfifo limit 4").unwrap();
    assert_eq!(change(&fifo, ""), Ok(fifo.clone()));
    let old = DrrClass { quantum: 300 };
    assert_eq!(DrrClass::parse(&[], old), Ok(old));
    assert!(DrrClass::parse(&words("quantum 0"), old).is_err());
}

// Goal: omitted entries of mqprio's map have tc's defaults, or 0 if the default traffic class does
// not exist.
#[test]
fn mqprio_maps() {
    let map = |text: &str| match read(text) {
        Ok(Params::Mqprio(q)) => q.map,
        other => panic!("{other:?}"),
    };
    let full = map("mqprio num_tc 4 queues 1@0 1@1 1@2 1@3 hw 0");
    assert_eq!(full, [0, 1, 2, 3, 0, 0, 0, 0, 0, 1, 1, 1, 3, 3, 3, 3]);
    assert_eq!(map("mqprio num_tc 2 map 1 0 queues 1@0 3@1")[..4], [1, 0, 0, 0]);
}

// Goal: errors of filters have tc's texts.
#[test]
fn filter_refusals() {
    let (ip, vlan) = (0x0800, 0x8100);
    let cases = [
        ("fw foo", 3, "What is \"foo\"?"),
        ("matchall foo", 3, "What is \"foo\"?"),
        ("matchall classid x", 3, "Illegal \"classid\": \"x\""),
        ("matchall action", 3, "Command line is not complete. Try option \"help\""),
        ("matchall action skbedit", 3, "Command line is not complete. Try option \"help\""),
        ("matchall action skbedit priority x", 3, "Illegal \"priority\": \"x\""),
        ("matchall action skbedit queue_mapping 99999", 3, "Illegal \"queue_mapping\": \"99999\""),
        ("matchall action police rate 1mbit", 3, "'rate' requires 'burst'"),
        ("matchall action police burst 1k", 3, "police: rate MUST be specified"),
        ("flower foo", 3, "What is \"foo\"?"),
        (
            "flower dst_ip 10.0.0.1",
            3,
            "Illegal \"dst_ip\": it needs protocol (or vlan_ethtype) ip or ipv6",
        ),
        ("flower dst_ip x", ip, "inet prefix is expected rather than \"x\""),
        ("flower dst_ip ::1", ip, "inet prefix is expected rather than \"::1\""),
        ("flower dst_ip 10.0.0.0/33", ip, "inet prefix is expected rather than \"10.0.0.0/33\""),
        ("flower ip_proto foo", ip, "Illegal \"ip_proto\": \"foo\""),
        ("flower src_port 1", ip, "Illegal \"src_port\": it needs ip_proto tcp, udp or sctp"),
        ("flower ip_proto tcp src_port 5-1", ip, "Illegal \"src_port\": \"5-1\""),
        ("flower vlan_id 3", ip, "Can't set \"vlan_id\" if ethertype isn't 802.1Q or 802.1AD"),
        ("flower vlan_id 5000", vlan, "Illegal \"vlan_id\": \"5000\""),
        ("flower vlan_prio 9", vlan, "Illegal \"vlan_prio\": \"9\""),
        ("flower src_mac x", ip, "Illegal \"src_mac\": \"x\""),
        ("flower ip_tos x", ip, "Illegal \"ip_tos\": \"x\""),
        ("u32 match u32 0 0", 3, "TC classifier not found"),
    ];
    for (text, protocol, error) in cases {
        assert_eq!(read_filter(text, protocol).expect_err(text), error, "{text}");
    }
    for kind in ["foo", "drop foo", "skbedit mark 1 foo", "police rate 1mbit burst 1k foo"] {
        let e = read_filter(&format!("matchall action {kind}"), 3).unwrap_err();
        assert!(e.contains("foo"), "{e}");
    }
}

// Goal: a filter is shown with the requested values, under tc's names and in tc's order.
#[test]
fn filters_are_shown_as_requested() {
    let shown = |text, protocol| {
        let plan = read_filter(text, protocol).unwrap();
        let keys = plan.matcher.keys();
        let keys: Vec<_> =
            keys.into_iter().map(|(name, value)| format!("{name} {value}")).collect();
        keys.join(" ")
    };
    assert_eq!(
        shown(
            "flower src_ip 10.1.2.3/8 dst_ip 10.0.0.1 ip_proto tcp dst_port 80 src_port 5-9",
            0x0800
        ),
        "eth_type ipv4 ip_proto tcp dst_ip 10.0.0.1 src_ip 10.0.0.0/8 dst_port 80 src_port 5-9"
    );
    assert_eq!(
        shown(
            "flower vlan_ethtype ipv6 ip_tos 0x28/0xfc dst_ip fe80::/10 vlan_id 5 vlan_prio 3",
            0x8100
        ),
        "vlan_id 5 vlan_prio 3 vlan_ethtype ipv6 ip_tos 0x28/fc dst_ip fe80::/10"
    );
    assert_eq!(
        shown("flower dst_mac 1:2:3:a:b:c/24 src_mac 02:00:00:00:00:01", 3),
        "dst_mac 01:02:03:0a:0b:0c/ff:ff:ff:00:00:00 src_mac 02:00:00:00:00:01"
    );
    assert_eq!(
        (shown("fw mask 0xff", 3), shown("fw classid 1:1", 3)),
        ("mask 0xff".into(), String::new())
    );
    let plan = read_filter(
        "matchall classid 1:2 action skbedit queue_mapping 3 priority 6 mark 1/0xf \
         action police rate 1mbit burst 10k mtu 2k conform-exceed continue/pipe action ok",
        3,
    )
    .unwrap();
    let actions: Vec<_> = plan.actions.iter().map(|a| (a.kind(), a.options())).collect();
    let text = |pairs: &[(&'static str, &str)]| {
        pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect::<Vec<_>>()
    };
    let edit =
        [("queue_mapping", "3"), ("priority", ":6"), ("mark", "1/0xf"), ("control_action", "pipe")];
    assert_eq!(actions[0], ("skbedit", text(&edit)));
    let police = [
        ("rate", "125000"),
        ("burst", "10240"),
        ("mtu", "2048"),
        ("control_action", "continue"),
        ("conform", "pipe"),
    ];
    assert_eq!(actions[1], ("police", text(&police)));
    assert_eq!(actions[2], ("gact", text(&[("control_action", "pass")])));
}

/// Valid and invalid words.
fn any_word() -> impl Strategy<Value = String> {
    const KNOWN: &str = "limit flows target interval quantum ecn noecn ce_threshold memory_limit \
        drop_batch rate burst buffer latency peakrate mtu bands priomap num_tc map queues hw 1@0 \
        2@1 0 1 7 255 65535 1mbit 10k 5ms 1:2 flowid classid action skbedit police drop ok pass \
        continue pipe gact conform-exceed drop/ok priority mark queue_mapping mask 1/0xff dst_ip \
        src_ip 10.0.0.0/8 ::1/128 ip_proto tcp udp dst_port src_port 1-9 80 vlan_id vlan_prio \
        vlan_ethtype ip ipv6 ip_tos 0x28/fc dst_mac 1:2:3:4:5:6/48 skip_hw / : - \
        999999999999999999";
    let known: Vec<&str> = KNOWN.split_whitespace().collect();
    prop_oneof![
        8 => prop::sample::select(known).prop_map(str::to_owned),
        1 => "\\PC{0,12}",
        1 => "[0-9.]{1,25}[a-zA-Z]{0,5}",
    ]
}

proptest! {
    // Goal: no options cause a panic, an error has a text without a full stop, and accepted values
    // are in the ranges that the qdiscs require.
    #[test]
    fn any_words_are_understood_or_refused(
        kind in prop::sample::select(&[
            "pfifo", "bfifo", "prio", "mqprio", "tbf", "fq_codel", "drr",
        ]),
        options in prop::collection::vec(any_word(), 0..12),
    ) {
        match Params::parse(kind, &options, None, ENV) {
            Ok(Params::Prio(q)) => {
                prop_assert!((2..=16).contains(&q.bands));
                prop_assert!(q.priomap.iter().all(|band| *band < q.bands));
            }
            Ok(Params::Mqprio(q)) => {
                prop_assert!(q.map.iter().all(|class| usize::from(*class) < q.queues.len()));
            }
            Ok(Params::Tbf(q)) => prop_assert!(q.rate > 0 && q.burst > 0 && q.limit > 0),
            Ok(Params::FqCodel(q)) => {
                prop_assert!((1..=65_536).contains(&q.flows) && q.drop_batch > 0);
            }
            Ok(_) => {}
            Err(e) => prop_assert!(!e.message.is_empty() && !e.message.ends_with('.')),
        }
        let _ = DrrClass::parse(&options, DrrClass::default());
    }

    // Goal: no options of a filter of any protocol cause a panic; an accepted filter has the
    // requested kind and can be shown.
    #[test]
    fn any_filters_are_understood_or_refused(
        kind in prop::sample::select(&["flower", "matchall", "fw"]),
        protocol in prop::sample::select(&[3u16, 0x0800, 0x86dd, 0x8100]),
        options in prop::collection::vec(any_word(), 0..12),
    ) {
        let known = Keys { protocol, handle: Some(Handle(1)) };
        if let Ok(plan) = filter(kind, &options, known) {
            prop_assert_eq!(plan.matcher.kind(), kind);
            plan.matcher.keys();
            plan.actions.iter().for_each(|action| drop(action.options()));
        }
    }

    // Goal: numbers with any unit equal the result of exact arithmetic.
    #[test]
    fn numbers_with_units_are_exact(n in 0u64..1 << 30, unit in 0usize..5) {
        const UNITS: [(&str, u128); 5] =
            [("bit", 1), ("kbit", 1000), ("kibit", 1024), ("kbps", 8000), ("mbit", 1_000_000)];
        let (name, bits) = UNITS[unit];
        let rate = u128::from(n) * bits / 8;
        let expected = u64::try_from(rate).ok();
        prop_assert_eq!(number::rate(&format!("{n}{name}")), expected);
        let few = n % 4_000_000;
        prop_assert_eq!(number::time(&format!("{few}us")), Some(few * 1000));
        prop_assert_eq!(number::size(&format!("{few}k")), Some(few as u32 * 1024));
    }
}
