use super::compare::cases;
use super::*;

const DOCUMENT: &str = "\
# Title

| word | meaning |
|---|---|
| a | b |

| probe | kernel 7.3 | mqnet | why |
|---|---|---|---|
| flags | `a \\| b` | - | because |

| test | vduse | vhost-user | why |
|---|---|---|---|
| queues.get_queues | pass | skip: no | so it is |
";

fn probe(name: &str, kernel: &[&str], ours: &[&str]) -> Probe {
    let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect();
    Probe {
        name: name.into(),
        what: "ethtool".into(),
        who: "veth".into(),
        kernel: lines(kernel),
        ours: lines(ours),
    }
}

fn compared(probes: Vec<Probe>, ends: [&str; 2]) -> Report {
    let answer = Answer {
        test: "queues.get_queues".into(),
        vduse: ends[0].into(),
        vhost_user: ends[1].into(),
    };
    let explained = Explained::read(DOCUMENT).unwrap();
    Report::new("7.3".into(), probes, vec![answer], explained).unwrap()
}

// Goal: what the document explains is read from its tables alone, and a row without a reason is
// refused.
#[test]
fn the_document_is_read() {
    let explained = Explained::read(DOCUMENT).unwrap();
    let difference =
        Difference { probe: "flags".into(), kernel: "a | b".into(), ours: String::new() };
    assert_eq!(explained.why(&difference), Some("because"));
    assert_eq!((explained.differences.len(), explained.answers.len()), (1, 1));
    assert!(Explained::read(&DOCUMENT.replace("because", "")).is_err());
    assert!(Explained::read(&DOCUMENT.replace("| because", "")).is_err());
}

// Goal: a difference is what only one side says; one that is explained is fine, while a new one,
// one that has vanished, and a test that ends otherwise are each complained about.
#[test]
fn what_the_document_does_not_say_is_complained_about() {
    let known = probe("flags", &["a | b", "exit 0"], &["exit 0"]);
    assert!(compared(vec![known.clone()], ["pass", "skip: no"]).complaints().is_empty());
    let new = probe("rings", &["x"], &["y"]);
    let complaints = compared(vec![known.clone(), new], ["pass", "skip: no"]).complaints();
    assert_eq!(complaints, ["new difference: | rings | `x` | `y` |"]);
    let same = probe("flags", &["a"], &["a"]);
    let complaints = compared(vec![same], ["pass", "skip: no"]).complaints();
    assert_eq!(complaints, ["explained, but not found: | flags | `a \\| b` | - |"]);
    let complaints = compared(vec![known], ["fail", "skip: no"]).complaints();
    assert_eq!(complaints.len(), 2, "{complaints:?}");
}

// Goal: lines in another order, and lines that come more often, are differences too.
#[test]
fn order_and_number_of_lines_count() {
    assert_eq!(probe("x", &["a", "b"], &["a", "b"]).difference(), None);
    let swapped = probe("x", &["a", "b"], &["b", "a"]).difference().unwrap();
    assert_eq!((swapped.kernel.as_str(), swapped.ours.as_str()), ("a / b", "b / a"));
    let twice = probe("x", &["a\tb", "a\tb"], &["a\tb"]).difference().unwrap();
    assert_eq!((twice.kernel.as_str(), twice.ours.as_str()), ("a b", ""));
}

// Goal: the ends of the kernel's tests are read from their output, with the reasons of skips.
#[test]
fn ends_of_tests_are_read() {
    let text = "TAP version 13\n1..4\n# a remark\nok 1 queues.get_queues\n\
                # Exception| X: no such file\n# Exception| \n\
                not ok 2 queues.check_xsk\nok 3 stats.check_fec # SKIP FEC not supported\n\
                ok 4 xdp.all # XFAIL later\n# Totals: pass:1\n";
    let cases = cases(text);
    let ends: Vec<(&str, &str)> = cases.iter().map(|(n, e)| (n.as_str(), e.as_str())).collect();
    assert_eq!(
        ends,
        [
            ("queues.get_queues", "pass"),
            ("queues.check_xsk", "fail: X: no such file"),
            ("stats.check_fec", "skip: FEC not supported"),
            ("xdp.all", "expected to fail"),
        ]
    );
}

// Goal: the table has a row for each question, and says why it is answered otherwise.
#[test]
fn the_table_says_why() {
    let probes = vec![
        probe("flags", &["a | b"], &[]),
        probe("long-name", &["a"], &["a"]),
        probe("rings", &["x"], &["y"]),
    ];
    let report = compared(probes, ["pass", "skip: no"]);
    let table = report.table();
    assert!(table.contains("flags      ethtool  veth    explained\n"), "{table}");
    assert!(table.contains("long-name  ethtool  veth    same\n"), "{table}");
    assert!(table.contains("rings      ethtool  veth    DIFFERENT\n"), "{table}");
    assert!(table.contains("why:    because") && table.contains("3 questions, 1 answered alike"));
    assert_eq!(report.json()["probes"][1]["same"], true);
}
