//! A second try, alone, for the few tests of a step that failed.
//!
//! The tests with kernels, guests and traffic run on machines that others use too. One that fails
//! in its row and passes alone is called unsteady: it does not end the run, its first output is
//! shown as a failure's is, and the table names it. It is a bug, of the test or of the program,
//! until somebody has shown which; more than [`FEW`] of them at once are never luck.

/// Failures of one step that may be tried again.
const FEW: usize = 3;

/// The names of the tests that failed, from the lists at the end of cargo's harness; none when
/// there are too many for luck.
pub(super) fn candidates(log: &str) -> Vec<&str> {
    let names = failed(log);
    if names.len() > FEW { Vec::new() } else { names }
}

/// The tests that failed.
pub(super) fn failed(log: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut in_list = false;
    for line in log.lines() {
        // The harness says `failures:` twice: before the outputs, and before the names.
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

/// What a failed test said, as the harness shows it.
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
        assert_eq!(candidates(LOG), ["a::c"]);
        assert_eq!(output(LOG, "a::c").unwrap().trim(), "left: 1::2\nthread panicked");
        assert_eq!(output(LOG, "a::d"), None);
    }

    #[test]
    fn many_failures_are_not_luck() {
        let log = "failures:\n    a::a\n    a::b\n    a::c\n    a::d\n\ntest result: FAILED.";
        assert_eq!(candidates(log), Vec::<&str>::new());
        assert_eq!(failed(log).len(), 4);
    }
}
