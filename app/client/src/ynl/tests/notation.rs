//! Comparison of the notation with Python's `pprint` and `json`, if python3 is installed.

use std::io::Write;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::{Value, json};

use super::super::{dumps, pprint};

const SCRIPT: &str = "
import json, pprint, sys
for line in sys.stdin:
    value = json.loads(line)
    print(json.dumps([pprint.pformat(value), json.dumps(value)]))
";

/// Texts of Python's `pprint` and `json` for each value; none if Python cannot be run.
fn python(values: &[Value]) -> Option<Vec<(String, String)>> {
    let mut child = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let lines: String = values.iter().map(|value| format!("{value}\n")).collect();
    let mut stdin = child.stdin.take()?;
    let feeder = std::thread::spawn(move || stdin.write_all(lines.as_bytes()).unwrap());
    let output = child.wait_with_output().ok()?;
    feeder.join().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        "[a-z-]{1,20}",
        "[ -~]{0,100}",
        "([a-z,:/=.]{1,30} ){0,6}",
        "[a-z'\"\\\\\t\r\n é\u{7f}\u{a0}]{0,90}",
    ];
    let leaf = prop_oneof![
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 8, |inner| {
        let key = "[a-z-]{1,12}|[a-z']{60,70}";
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            proptest::collection::vec((key, inner), 0..8)
                .prop_map(|fields| fields.into_iter().collect::<Value>()),
        ]
    })
    // `pprint` formats a long text outside a list or object differently. Responses are lists or
    // objects: wrap the text.
    .prop_map(|value| if value.is_string() { json!([value]) } else { value })
}

// Goal: a thousand arbitrary values have the text that Python writes.
#[test]
fn as_python_writes() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = value();
    let values: Vec<Value> =
        (0..1000).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect();
    let Some(python) = python(&values) else { return };
    assert_eq!(python.len(), values.len());
    for (value, (pretty, json)) in values.iter().zip(&python) {
        assert_eq!(&pprint::format(value), pretty, "{value}");
        assert_eq!(&dumps(value, &[]), json, "{value}");
    }
}

// Goal: without Python, 80 columns fit on one line, 81 do not, and quotes are chosen as in Python.
#[test]
fn eighty_columns() {
    let fits = json!({"a": "x".repeat(34), "b": "y".repeat(28)});
    assert_eq!(pprint::format(&fits).len(), 80);
    let over = json!({"a": "x".repeat(34), "b": "y".repeat(29)});
    assert_eq!(pprint::format(&over).lines().count(), 2);
    assert_eq!(pprint::quote("it's"), "\"it's\"");
    assert_eq!(pprint::quote("it's \"x\""), "'it\\'s \"x\"'");
}
