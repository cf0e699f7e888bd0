//! Failed tests in the output of cargo's harness.

/// Names of the failed tests.
pub(super) fn names(log: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut in_list = false;
    for line in log.lines() {
        // The harness prints `failures:` before the outputs of failed tests, and again before the
        // list of the tests' names.
        match line.strip_prefix("    ") {
            _ if line == "failures:" => in_list = true,
            Some(name) if in_list && is_name(name) && !names.contains(&name) => names.push(name),
            None => in_list = false,
            Some(_) => {}
        }
    }
    names
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_:".contains(&b))
}

/// Output of a failed test in the log of the harness; `None` if the log does not contain this
/// output.
pub(super) fn output<'a>(log: &'a str, name: &str) -> Option<&'a str> {
    let head = format!("---- {name} stdout ----\n");
    let (_, rest) = log.split_once(&head)?;
    let ends = ["\n---- ", "\nfailures:\n", "\nsuccesses:\n"];
    let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "test a::b ... ok\ntest a::c ... FAILED\n\nsuccesses:\n\n\
        ---- a::b stdout ----\nfine\n\n\nsuccesses:\n    a::b\n\nfailures:\n\n\
        ---- a::c stdout ----\n    left: 1::2\nthread panicked\n\n\nfailures:\n    a::c\n\n\
        test result: FAILED. 1 passed; 1 failed; 0 ignored\n";

    #[test]
    fn the_failed_are_found() {
        assert_eq!(names(LOG), ["a::c"]);
        assert_eq!(output(LOG, "a::c").unwrap().trim(), "left: 1::2\nthread panicked");
        assert_eq!(output(LOG, "a::d"), None);
    }
}
