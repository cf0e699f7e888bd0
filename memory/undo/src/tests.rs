//! Journals and what is made of them, in a tree of files that stands for the kernel's.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::journal::{Line, boot};
use crate::recover::recover_below;
use crate::{Place, Setting, Undo, Value, keep_in};

/// A process has one journal.
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
        Undo::set(&Place::here(), setting, before, &Value::Text(cpus.to_owned())).unwrap()
    }

    fn state(&self) -> [String; 2] {
        [30, 31].map(|irq| fs::read_to_string(self.irq(irq)).unwrap().trim().to_owned())
    }

    /// The journal as it would be found if this process were killed now.
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

// Goal: a journal is there while something is changed and not longer, and is nobody else's to put
// back while its process lives.
#[test]
fn a_journal_lives_as_long_as_a_change() {
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

// Goal: what a killed process has set is put back, as far as it was not put back and nobody else
// has changed it; a change that was announced and perhaps made counts as made; the journal is gone
// then.
#[test]
fn a_killed_process_is_tidied_up_after() {
    let tree = Tree::new();
    let all = [tree.set(30, "1"), tree.set(31, "2")];
    tree.killed();
    let said = tree.recover();
    assert_eq!(tree.state(), ["0-3", "0-3"]);
    assert!(said.len() == 2 && said.iter().all(|what| what.ends_with(": 0-3 again")), "{said:?}");
    assert!(said[0].starts_with("killed mqnet 17: ") && said[0].contains("irq/31"), "{said:?}");
    assert_eq!(tree.journals().len(), 1);
    // The second was about to be made.
    fs::write(tree.irq(30), "7").unwrap();
    fs::write(tree.irq(31), "5").unwrap();
    let journal = tree.killed();
    edit(&journal, |text| text.trim_end().rsplit_once('\n').unwrap().0.to_owned() + "\n{\"to");
    let said = tree.recover();
    assert!(said[1].contains("changed since"), "{said:?}");
    assert_eq!(tree.state(), ["7", "0-3"]);
    // Neither is as it was left.
    let failed = crate::put_back(all.into());
    assert!(failed.len() == 1 && failed[0].contains("changed since"), "{failed:?}");
}

// Goal: what cannot be put back now is put back by the next one that can; what one killed process
// had from another is put back to what was there before both.
#[test]
fn what_fails_is_tried_again() {
    let tree = Tree::new();
    let first = tree.set(30, "1");
    fs::rename(tree.killed(), tree.folder().join("9-0.changes")).unwrap();
    let other = tree.set(31, "2");
    let second = tree.set(30, "2");
    tree.killed();
    // In the way of what is to be written.
    fs::remove_file(tree.irq(31)).unwrap();
    fs::create_dir(tree.irq(31)).unwrap();
    let said = tree.recover();
    assert_eq!(fs::read_to_string(tree.irq(30)).unwrap(), "0-3", "{said:?}");
    assert_eq!((said.len(), tree.journals().len()), (4, 2), "{said:?}");
    assert!(said.iter().any(|what| what.contains("31") && what.contains("(it was 0-3)")));
    fs::remove_dir(tree.irq(31)).unwrap();
    fs::write(tree.irq(31), "2").unwrap();
    let said = tree.recover();
    assert_eq!((tree.state(), said.len()), (["0-3".into(), "0-3".into()], 1), "{said:?}");
    assert_eq!(tree.journals().len(), 1);
    // In this process, which lives, the last one would be about to put "1" back.
    let said = crate::put_back(vec![first, other, second]);
    assert!(said.len() == 1 && said[0].contains("changed since"), "{said:?}");
}

// Goal: a journal does not grow for ever, and still says what is due.
#[test]
fn a_long_journal_is_written_anew() {
    let tree = Tree::new();
    let _kept = tree.set(31, "2");
    let mut often = tree.set(30, "1");
    for turn in 0..3000 {
        often.change(&Value::Text(format!("{}", turn % 3))).unwrap();
    }
    let [journal] = &tree.journals()[..] else { panic!("{:?}", tree.journals()) };
    assert!(fs::metadata(journal).unwrap().len() < 300 << 10);
    fs::copy(journal, tree.folder().join("17-5.changes")).unwrap();
    let said = tree.recover();
    assert_eq!((tree.state(), said.len()), (["0-3".into(), "0-3".into()], 2), "{said:?}");
}

// Goal: a journal of another boot is thrown away; one that others could have written, one of
// another namespace and one that names other files are not believed.
#[test]
fn what_is_not_believed() {
    let tree = Tree::new();
    let _set = tree.set(30, "1");
    let untouched = |why: &str| {
        let said = tree.recover();
        assert_eq!((tree.state(), said), (["1".into(), "0-3".into()], Vec::new()), "{why}");
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
