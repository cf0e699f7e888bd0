//! Tests with valid and invalid addresses.

use super::*;
use mqnet_netdev::Io;
use proptest::prelude::*;

// Goal: the addresses of the README are parsed to the documented values.
#[test]
fn good_addresses() {
    let Ok(Endpoint::Tap(tap)) = parse("tap:a,address=10.0.0.1/24,address=fd00::1/64,mtu=9000")
    else {
        panic!()
    };
    assert_eq!((tap.name.as_str(), tap.mtu, tap.addresses.len()), ("a", Some(9000), 2));
    let Ok(Endpoint::Tap(tap)) = parse("tap:a,netns=blue,persist,fd=5:6,mac=02:00:00:00:00:01")
    else {
        panic!()
    };
    assert_eq!(tap.netns, Some("/run/netns/blue".into()));
    assert_eq!((tap.persist, tap.fds, tap.mac), (true, vec![5, 6], Some([2, 0, 0, 0, 0, 1])));
    for (text, io) in
        [("", Io::Auto), (",io=auto", Io::Auto), (",io=uring", Io::Uring), (",io=plain", Io::Plain)]
    {
        let Ok(Endpoint::Tap(tap)) = parse(&format!("tap:a{text}")) else { panic!("{text}") };
        assert_eq!(tap.io, io);
    }
    let ntb = parse("ntb:/run/x.sock,window=512K").unwrap();
    assert_eq!(
        ntb,
        Endpoint::Ntb(Ntb {
            path: "/run/x.sock".into(),
            window: 512 << 10,
            mtu: None,
            name: None,
            access: SocketAccess::default(),
        })
    );
    assert_eq!(parse("null:"), Ok(Endpoint::Null));
    let card = |address: &str| match parse(address) {
        Ok(Endpoint::VhostUser(card)) => card,
        other => panic!("{other:?}"),
    };
    let plain = card("vhost-user:/run/vm0.sock");
    assert_eq!((plain.connect, plain.queues, plain.packed), (false, 64, true));
    assert!(!plain.ctrl && card("vhost-user:/x,ctrl=on").ctrl);
    assert_eq!(Endpoint::VhostUser(plain.clone()).config().netdev_name(), "vm0");
    let full = card("vhost-user:/run/vm0.sock,connect,queues=8,packed=off,mtu=9000,name=web");
    assert_eq!((full.connect, full.queues, full.packed, full.mtu), (true, 8, false, Some(9000)));
    assert_eq!(Endpoint::VhostUser(full).config().netdev_name(), "web");
    let inherited = Endpoint::VhostUser(card("vhost-user:,fd=7"));
    let inherited = inherited.config();
    assert_eq!((inherited.inherited(), inherited.netdev_name()), (&[7][..], "vhost-user".into()));
}

// Goal: every kind accepts a discipline and a full-sink policy at any position among its options.
#[test]
fn every_kind_has_an_egress() {
    use mqnet_engine::Full;
    for (address, plain) in [
        ("tap:a,qdisc=fq_codel  limit 100 ,persist,full=drop", "tap:a,persist"),
        ("ntb:/x,full=drop,name=n,qdisc=fq_codel limit 100", "ntb:/x,name=n"),
        ("null:,qdisc=fq_codel limit 100,full=drop", "null:"),
    ] {
        let (endpoint, egress) = parse_both(address).unwrap();
        assert_eq!(endpoint, parse(plain).unwrap(), "{address}");
        assert_eq!(egress.qdisc.as_deref(), Some("fq_codel limit 100"), "{address}");
        assert_eq!(egress.full, Full::Drop, "{address}");
        assert_eq!(parse_both(plain).unwrap().1, EgressConfig::default());
    }
}

// Goal: permissions are parsed for each kind that creates a socket.
#[test]
fn sockets_have_permissions() {
    let wanted = SocketAccess {
        mode: Some(0o660),
        owner: Some("libvirt-qemu".to_owned()),
        group: Some("64055".to_owned()),
    };
    let options = "mode=0660,owner=libvirt-qemu,group=64055";
    for address in ["vhost-user:/x", "virtio-user:/x,server", "ntb:/x"] {
        let access = match parse(&format!("{address},{options}")).unwrap() {
            Endpoint::VhostUser(card) => card.access,
            Endpoint::VirtioUser(virtio) => virtio.access,
            Endpoint::Ntb(end) => end.access,
            other => panic!("{other:?}"),
        };
        assert_eq!(access, wanted, "{address}");
    }
}

// Goal: the error of a malformed address contains the wrong part and the allowed values.
#[test]
fn bad_addresses_name_the_field() {
    for (address, words) in [
        ("", "no kind"),
        ("tap", "no kind"),
        ("tun:a", "unknown kind 'tun'"),
        ("tap:", "not a valid interface name"),
        ("tap:averyveryverylongname", "1 to 15"),
        ("tap:sixteencharacter", "1 to 15"),
        ("tap:a/b", "not a valid interface name"),
        ("tap:.", "'.' is not a valid interface name"),
        ("tap:..", "not a valid interface name"),
        ("tap:a:1", "not a valid interface name"),
        ("tap:a b", "not a valid interface name"),
        ("tap:a\u{e0}", "not a valid interface name"),
        ("tap:a\u{1b}[31m", "a control character: not allowed"),
        ("xdp:.", "not a valid interface name"),
        ("xdp:eth0:1", "not a valid interface name"),
        ("tap:a,mtu=65522", "68 to 65521"),
        ("tap:a,mtu", "unknown option 'mtu'"),
        ("tap:a,persist=1", "unknown option 'persist=1'"),
        ("tap:a,speed=3", "allowed: netns= mac="),
        ("tap:a,mac=01:00:00:00:00:00", "must be a unicast Ethernet address"),
        ("tap:a,mac=2:0:0:0:0:1", "02:00:00:00:00:01"),
        ("tap:a,address=10.0.0.1", "10.0.0.1/24"),
        ("tap:a,fd=1", "above 2"),
        ("tap:a,io", "unknown option 'io'"),
        ("ntb:", "0 bytes"),
        ("ntb:/x,window=1", "4K to 1G"),
        ("ntb:/x,window=99999999999999999999", "4K to 1G"),
        ("ntb:/x,queues=2", "allowed: window= mtu="),
        ("vhost-user:", "0 bytes"),
        ("vhost-user:/x,queues=0", "queues=0: must be a number from 1 to 64"),
        ("vhost-user:/x,fd=7", "vhost-user:,fd=N"),
        ("vhost-user:,connect,fd=7", "vhost-user:,fd=N"),
        ("vhost-user:,fd=2", "above 2"),
        ("vhost-user:/x,server", "allowed: connect queues="),
        ("vhost-user:/x,mode=999", "mode=999: must be octal"),
        ("vhost-user:/x,mode=1777", "from 0 to 0777"),
        ("vhost-user:/x,mode", "unknown option 'mode'"),
        ("vhost-user:/x,owner=", "owner=: must be a name or a number"),
        ("vhost-user:/x,group=a:b", "group=a:b: must be"),
        ("vhost-user:/x,connect,mode=0660", "a socket that mqnet creates: not with connect"),
        ("vhost-user:,fd=7,group=kvm", "a socket that mqnet creates: not with fd="),
        ("virtio-user:/x,mode=0660", "a socket that mqnet creates: with server"),
        ("ntb:/x,user=me", "mode= owner= group= qdisc="),
        ("ntb:/tmp/\u{1b}[31m.sock", "control character"),
        ("null:,a", "unknown option 'a'; allowed: qdisc= full= rx-locality="),
        ("tap:a,full=on", "full=on: must be stop or drop"),
        ("ntb:/x,full", "unknown option 'full'"),
        ("null:,qdisc=", "arguments of tc qdisc"),
        ("null:,qdisc=  ", "arguments of tc qdisc"),
        ("tap:a,qdisc", "unknown option 'qdisc'"),
        ("tap:a,qdisc=pfifo,qdisc=mq", "qdisc= is given twice"),
        ("tap:a,qdisc=prio bands 3,priomap 1 2", "unknown option 'priomap 1 2'"),
    ] {
        let text = parse(address).unwrap_err().to_string();
        assert!(text.contains(words), "{address}: {text}");
    }
}

// Goal: the bounds of a range are allowed, and their outer neighbours are not.
#[test]
fn ranges_include_their_ends() {
    for option in KINDS.iter().flat_map(|kind| kind.options()) {
        let (ValueType::Number(min, max)
        | ValueType::PowerOfTwo(min, max)
        | ValueType::Size(min, max)) = option.value
        else {
            continue;
        };
        let numbers = [i64::from(min) - 1, min.into(), max.into(), i64::from(max) + 1];
        let read = numbers.map(|n| option.value.read(Some(&n.to_string())).is_ok());
        assert_eq!(read, [false, true, true, false], "{}", option.name);
    }
}

proptest! {
    // Goal: a value of a declared option is parsed, or the error contains the option, the value and
    // the allowed values.
    #[test]
    fn any_value_is_read_or_refused(
        kind in prop::sample::select(KINDS.to_vec()),
        option: prop::sample::Index,
        value in "[a-z0-9:/.KMG+ -]{0,12}",
    ) {
        let options: Vec<_> = kind.options().collect();
        let option = option.get(&options);
        let text = format!("{}={value}", option.name);
        match (kind.read_options(&text), option.value) {
            (Ok(_), _) => prop_assert!(option.value.read(Some(&value)).is_ok()),
            (Err(e), ValueType::Flag) => {
                let start = format!("unknown option '{text}'; allowed: ");
                prop_assert!(e.starts_with(&start), "{e}");
            }
            (Err(e), declared) => {
                prop_assert_eq!(e, format!("{text}: must be {}", declared.allowed()));
            }
        }
    }

    // Goal: no text makes the parser panic, and every error has a reason.
    #[test]
    fn any_text_is_answered(
        text in "(tap|ntb|vhost-user|null|x)?:?[a-z0-9/,=:.KMG%-]{0,40}",
        noise: String,
    ) {
        for text in [text, noise] {
            if let Err(e) = parse(&text) {
                prop_assert!(!e.to_string().is_empty());
            }
        }
    }
}
