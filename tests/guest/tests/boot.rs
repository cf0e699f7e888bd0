//! Behaviour of guests without mqnet: input, results and failures.

use std::time::Duration;

use mqnet_guest::{Guest, Kernel};
use mqnet_testkit::Figures;

use crate::there;

const HELLO: &str = "uname -r; cat /files/greeting; echo from the guest > $RESULTS/reply; exit 7";

// Goal: a guest runs the requested kernel and returns text, files and exit status. A script that
// fails does not stop the guest or later scripts, and is reported with its output.
#[test]
fn input_and_results_are_transferred() {
    for (kernel, release) in [(Kernel::V6_1, "6.1."), (Kernel::V7_3, "")] {
        if !there(kernel) {
            return;
        }
        mqnet_guest::build().unwrap();
        let guest = Guest::new(kernel, &format!("test-hello-{kernel}"))
            .limit(Duration::from_secs(120))
            .file("files/greeting", "hello\n")
            .script("a-hello", HELLO)
            .script("b-next", "echo next");
        let outcome = guest.run().unwrap();
        println!("{kernel}: {} booted after {:.1} s", outcome.release, outcome.booted_after);
        let (part, seconds) = (format!("boot {kernel}"), [outcome.booted_after]);
        let case = format!("boot of kernel {kernel} to the first script");
        Figures::of("guests", &part).case(&case, "s", &[("a guest", &seconds)], &[]).keep();
        let hello = &outcome.done["a-hello"];
        assert!(hello.output.starts_with(release), "{}", hello.output);
        assert_eq!(hello.output, format!("{}\nhello\n", outcome.release));
        assert_eq!(hello.status, 7);
        assert_eq!(outcome.text("reply").unwrap(), "from the guest\n");
        let told = outcome.passed("a-hello").unwrap_err().to_string();
        assert!(told.contains("status 7") && told.contains("hello"), "{told}");
        assert_eq!(outcome.passed("b-next").unwrap().output, "next\n");
        assert!(outcome.console.is_file());
    }
}

// Goal: a guest that crashes or hangs is ended at its time limit or before. The error contains the
// end of the console and the path of the log.
#[test]
fn failure_of_a_guest_reports_its_console() {
    if !there(Kernel::V6_1) {
        return;
    }
    mqnet_guest::build().unwrap();
    let crash = "echo last words; sleep 5; echo c > /proc/sysrq-trigger";
    let hang = "echo last words; sleep 1000";
    for (script, told, limit) in [(crash, "no results", 100), (hang, "killed after 60 s", 60)] {
        let guest = Guest::new(Kernel::V6_1, "test-failing").script("script", script);
        let error = guest.limit(Duration::from_secs(limit)).run().unwrap_err().to_string();
        for text in [told, "last words", "console.log"] {
            assert!(error.contains(text), "no '{text}' in: {error}");
        }
    }
}
