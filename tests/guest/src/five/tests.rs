use super::answers::cases;
use super::kernel_tests::{Program, When};
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

fn compared(probes: Vec<Probe>) -> Report {
    Report::new("7.3".into(), probes, Explained::read(DOCUMENT).unwrap()).unwrap()
}

// Goal: explanations are parsed from the tables of the document only, and a row without a reason is
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

// Goal: a difference consists of the lines that only one answer contains. A documented difference
// passes. A new difference, and a documented one that no longer exists, are reported.
#[test]
fn undocumented_differences_are_reported() {
    let known = probe("flags", &["a | b", "exit 0"], &["exit 0"]);
    assert!(compared(vec![known.clone()]).complaints().is_empty());
    let new = probe("rings", &["x"], &["y"]);
    let complaints = compared(vec![known.clone(), new]).complaints();
    assert_eq!(complaints, ["new difference: | rings | `x` | `y` |"]);
    let same = probe("flags", &["a"], &["a"]);
    let complaints = compared(vec![same]).complaints();
    assert_eq!(complaints, ["explained, but not found: | flags | `a \\| b` | - |"]);
}

// Goal: lines in another order, and another number of lines, are differences too.
#[test]
fn order_and_number_of_lines_count() {
    assert_eq!(probe("x", &["a", "b"], &["a", "b"]).difference(), None);
    let swapped = probe("x", &["a", "b"], &["b", "a"]).difference().unwrap();
    assert_eq!((swapped.kernel.as_str(), swapped.ours.as_str()), ("a / b", "b / a"));
    let twice = probe("x", &["a\tb", "a\tb"], &["a\tb"]).difference().unwrap();
    assert_eq!((twice.kernel.as_str(), twice.ours.as_str()), ("a b", ""));
}

// Goal: the results of the kernel's tests are parsed from their output, with the reasons of skips.
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
            ("get_queues", "pass"),
            ("check_xsk", "fail: X: no such file"),
            ("check_fec", "skip: FEC not supported"),
            ("all", "expected to fail: later"),
        ]
    );
}

// Goal: the table has a row for each request, with the reason of a difference.
#[test]
fn table_contains_reasons() {
    let probes = vec![
        probe("flags", &["a | b"], &[]),
        probe("long-name", &["a"], &["a"]),
        probe("rings", &["x"], &["y"]),
    ];
    let report = compared(probes);
    let table = report.table();
    assert!(table.contains("flags      ethtool  veth    explained\n"), "{table}");
    assert!(table.contains("long-name  ethtool  veth    same\n"), "{table}");
    assert!(table.contains("rings      ethtool  veth    DIFFERENT\n"), "{table}");
    assert!(table.contains("why:    because") && table.contains("3 questions, 1 answered alike"));
    assert_eq!(report.json()["probes"][1]["same"], true);
}

fn program(line: &str) -> Program {
    Program::list(line).unwrap().remove(0)
}

// Goal: a mark selects the runs that include a program, and is not part of its label.
#[test]
fn marks_select_the_runs_of_a_program() {
    let when = |mark: &str| program(&format!("{mark}drivers/net/hw tso.py 0 2 60")).when;
    assert_eq!(["", "-", "~"].map(when), [When::Tests, When::Comparison, When::Choice]);
    assert_eq!(program("-drivers/net/hw tso.py 0 2 60").label(), "hw/tso");
    assert!(Program::list("drivers/net tso.py").is_err());
}

// Goal: a case that differs from the others of its program has a separate result; equal results are
// combined. A case has passed if it passed in one of two attempts. If a program has no cases on one
// netdev, its result there applies to each case on the other netdev.
#[test]
fn programs_answer_by_case_or_as_a_whole() {
    let program = program("# a remark\n\ndrivers/net ping.py 0 2 60");
    let once = |text: &str| [text.to_owned(), String::new()];
    let of = |vduse, other| Answer::of(&program, &once(vduse), &once(other)).unwrap();
    let (good, mixed) =
        ("ok 1 ping.a\nok 2 ping.b\n\nstatus 0\n", "ok 1 ping.a\nnot ok 2 ping.b\n\nstatus 1\n");
    let row = |a: &Answer| format!("{} {} {}", a.test, a.vduse, a.vhost_user);
    let rows = |all: &[Answer]| all.iter().map(row).collect::<Vec<_>>();
    assert_eq!(rows(&of(good, good)), ["ping (all 2) pass pass"]);
    assert_eq!(rows(&of(good, mixed)), ["ping.a pass pass", "ping.b pass fail: "]);
    let skip = "ok 1 ping.a # SKIP one\nok 2 ping.b # SKIP two\n\nstatus 0\n";
    assert_eq!(rows(&of(skip, skip)), ["ping (all 2) skip: one skip: one"]);
    let late = of(good, "ok 1 ping.a\n\nstatus 124\n");
    assert_eq!(late[0].vhost_user, "not done after 60 s");
    assert_eq!(late[1].vhost_user, "not done after 60 s");
    let refused = of("X: no such\n\nstatus 1\n", "1..0 # SKIP no\n\nstatus 4\n");
    assert_eq!(rows(&refused), ["ping fail: X: no such skip: 1..0 # SKIP no"]);
    assert!(Answer::of(&program, &once("killed"), &once(good)).is_err());
    let other =
        mixed.replace("ok 1", "not ok 1").replace("not not", "not").replace("not ok 2", "ok 2");
    let tries = [mixed.to_owned(), other];
    assert_eq!(
        rows(&Answer::of(&program, &tries, &once(good)).unwrap()),
        ["ping (all 2) pass pass"]
    );
}

// Goal: the result of a script is the number of passed tests, the name of the first failed test, or
// the reason of a skip.
#[test]
fn scripts_answer_with_what_passed() {
    let program = program("net/forwarding bridge_mdb.sh 0 4 60");
    let of = |printed: &str, status| {
        let text = format!("{printed}\nstatus {status}\n");
        let once = [text, String::new()];
        Answer::of(&program, &once, &once).unwrap().remove(0)
    };
    let good = "TEST: ping     [ OK ]\nTEST: ping6   [ OK ]\n";
    assert_eq!(of(good, 0).vduse, "pass: 2");
    assert_eq!(of(good, 0).test, "forwarding/bridge_mdb");
    assert_eq!(of(&format!("{good}TEST: no tool   [SKIP]\n"), 4).vduse, "pass: 2, skip: 1");
    assert_eq!(of(&format!("{good}TEST: flood  me  [FAIL]\n"), 1).vduse, "fail: flood me");
    assert_eq!(of("SKIP: jq not installed\n", 4).vduse, "skip: jq not installed");
    assert_eq!(of("TEST: SKIP: dev v0 does not   [ OK ]\n", 4).vduse, "skip: dev v0 does not");
}
