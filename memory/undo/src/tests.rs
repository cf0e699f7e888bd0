//! Journals and their recovery, in a directory tree that replaces the kernel's.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::journal::{Line, boot};
use crate::recover::recover_below;
use crate::{Setting, SettingNetns, Undo, Value, keep_in};

/// A process has only one journal, so tests run one at a time.
static ONE: Mutex<()> = Mutex::new(());

struct Tree {
    root: PathBuf,
    _one: MutexGuard<'static, ()>,
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Tree {
    fn new() -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let root = std::env::temp_dir().join(format!("mqnet-undo-{}", std::process::id()));
        let tree = Self { root, _one: one };
        for irq in [30, 31] {
            fs::create_dir_all(tree.irq(irq).parent().unwrap()).unwrap();
            fs::write(tree.irq(irq), "0-3\n").unwrap();
        }
        fs::create_dir_all(tree.folder()).unwrap();
        let folder = tree.folder();
        keep_in(move || Ok(folder.clone()));
        tree
    }

    fn irq(&self, irq: u32) -> PathBuf {
        self.root.join(format!("proc/irq/{irq}/smp_affinity_list"))
    }

    fn folder(&self) -> PathBuf {
        self.root.join("run")
    }

    fn journals(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.folder()).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| path.extension().is_some_and(|ending| ending == "changes")).collect()
    }

    fn set(&self, irq: u32, cpus: &str) -> Undo {
        let setting = Setting::File(self.irq(irq));
        let before = setting.read().unwrap();
        Undo::set(&SettingNetns::here(), setting, before, &Value::Text(cpus.to_owned())).unwrap()
    }

    fn state(&self) -> [String; 2] {
        [30, 31].map(|irq| fs::read_to_string(self.irq(irq)).unwrap().trim().to_owned())
    }

    /// Copies the journal to the state that a kill of this process would leave.
    fn killed(&self) -> PathBuf {
        let ours = format!("{}-", std::process::id());
        let is_ours =
            |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(&ours);
        let journal = self.journals().into_iter().find(is_ours).expect("our journal");
        let copy = self.folder().join("17-0.changes");
        fs::copy(journal, &copy).unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(0o600)).unwrap();
        copy
    }

    fn recover(&self) -> Vec<String> {
        recover_below(&self.folder(), &self.root, Duration::ZERO)
    }
}

fn edit(path: &Path, change: impl FnOnce(String) -> String) {
    let text = fs::read_to_string(path).unwrap();
    fs::write(path, change(text)).unwrap();
}

// Goal: a journal exists only while a change is active, and no other process restores it while its
// owner lives.
#[test]
fn journal_exists_while_a_change_is_active() {
    let tree = Tree::new();
    let (mut first, second) = (tree.set(30, "1"), tree.set(31, "2"));
    assert_eq!(tree.journals().len(), 1);
    assert!(tree.recover().is_empty());
    assert_eq!(tree.state(), ["1", "2"]);
    first.change(&Value::Text("3".to_owned())).unwrap();
    drop(second);
    assert_eq!((tree.state(), tree.journals().len()), (["3".into(), "0-3".into()], 1));
    assert!(crate::put_back(vec![first]).is_empty());
    assert_eq!(tree.state(), ["0-3", "0-3"]);
    assert!(tree.journals().is_empty());
}

// Goal: settings of a killed process are restored, unless they were restored or another program has
// changed them. An announced change counts as made, and the journal is removed afterwards.
#[test]
fn settings_of_a_killed_process_are_restored() {
    let tree = Tree::new();
    let all = [tree.set(30, "1"), tree.set(31, "2")];
    tree.killed();
    let messages = tree.recover();
    assert_eq!(tree.state(), ["0-3", "0-3"]);
    assert!(
        messages.len() == 2 && messages.iter().all(|what| what.ends_with(": 0-3 again")),
        "{messages:?}"
    );
    assert!(
        messages[0].starts_with("killed mqnet 17: ") && messages[0].contains("irq/31"),
        "{messages:?}"
    );
    assert_eq!(tree.journals().len(), 1);
    // The second change was only announced.
    fs::write(tree.irq(30), "7").unwrap();
    fs::write(tree.irq(31), "5").unwrap();
    let journal = tree.killed();
    edit(&journal, |text| text.trim_end().rsplit_once('\n').unwrap().0.to_owned() + "\n{\"to");
    let messages = tree.recover();
    assert!(messages[1].contains("changed since"), "{messages:?}");
    assert_eq!(tree.state(), ["7", "0-3"]);
    // Neither setting has the value that was set.
    let failed = crate::put_back(all.into());
    assert!(failed.len() == 1 && failed[0].contains("changed since"), "{failed:?}");
}

// Goal: a failed restoration is retried by the next process. If two killed processes changed one
// setting, the value from before both is restored.
#[test]
fn failed_restorations_are_retried() {
    let tree = Tree::new();
    let first = tree.set(30, "1");
    fs::rename(tree.killed(), tree.folder().join("9-0.changes")).unwrap();
    let other = tree.set(31, "2");
    let second = tree.set(30, "2");
    tree.killed();
    // A directory makes the write fail.
    fs::remove_file(tree.irq(31)).unwrap();
    fs::create_dir(tree.irq(31)).unwrap();
    let messages = tree.recover();
    assert_eq!(fs::read_to_string(tree.irq(30)).unwrap(), "0-3", "{messages:?}");
    assert_eq!((messages.len(), tree.journals().len()), (4, 2), "{messages:?}");
    assert!(messages.iter().any(|what| what.contains("31") && what.contains("(it was 0-3)")));
    fs::remove_dir(tree.irq(31)).unwrap();
    fs::write(tree.irq(31), "2").unwrap();
    let messages = tree.recover();
    assert_eq!((tree.state(), messages.len()), (["0-3".into(), "0-3".into()], 1), "{messages:?}");
    assert_eq!(tree.journals().len(), 1);
    // This process still lives, so its last change would restore "1".
    let messages = crate::put_back(vec![first, other, second]);
    assert!(messages.len() == 1 && messages[0].contains("changed since"), "{messages:?}");
}

// Goal: the length of a journal is bounded, and its active changes are kept.
#[test]
fn long_journals_are_rewritten() {
    let tree = Tree::new();
    let _kept = tree.set(31, "2");
    let mut often = tree.set(30, "1");
    for round in 0..3000 {
        often.change(&Value::Text(format!("{}", round % 3))).unwrap();
    }
    let [journal] = &tree.journals()[..] else { panic!("{:?}", tree.journals()) };
    assert!(fs::metadata(journal).unwrap().len() < 300 << 10);
    fs::copy(journal, tree.folder().join("17-5.changes")).unwrap();
    let messages = tree.recover();
    assert_eq!((tree.state(), messages.len()), (["0-3".into(), "0-3".into()], 2), "{messages:?}");
}

// Goal: a journal of another boot is removed. A journal that others could have written, of another
// namespace, or with other files is not trusted.
#[test]
fn untrusted_journals_are_ignored() {
    let tree = Tree::new();
    let _set = tree.set(30, "1");
    let untouched = |why: &str| {
        let messages = tree.recover();
        assert_eq!((tree.state(), messages), (["1".into(), "0-3".into()], Vec::new()), "{why}");
    };
    let journal = tree.killed();
    edit(&journal, |text| text.replace(&boot(), "another"));
    untouched("another boot");
    assert!(!journal.exists());
    for mode in [0o622, 0o660] {
        let journal = tree.killed();
        fs::set_permissions(&journal, Permissions::from_mode(mode)).unwrap();
        untouched("others may write it");
        assert!(journal.exists());
    }
    let journal = tree.killed();
    edit(&journal, |text| text.lines().filter(|line| !line.contains("of")).collect());
    untouched("no first line");
    let journal = tree.killed();
    let header = r#"{"of":{"boot":""#.to_owned() + &boot() + r#"","netns":[0,0]}}"#;
    assert!(matches!(serde_json::from_str(&header), Ok(Line::Of { .. })));
    edit(&journal, |text| format!("{header}\n{text}"));
    untouched("another namespace");
    assert!(journal.exists());
    fs::remove_file(&journal).unwrap();
    for folder in ["etc/irq", "proc/irq/../../etc", "proc/irq/30/30"] {
        let journal = tree.killed();
        edit(&journal, |text| text.replace("proc/irq", folder));
        untouched(folder);
        assert!(!journal.exists());
    }
}
