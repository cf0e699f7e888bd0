use super::*;

// Goal: a resource has one owner at a time, and can be taken again after it was put back.
#[cfg(not(loom))]
#[test]
fn one_owner_at_a_time() {
    let cell = HandOver::new(1);
    let thing = cell.take().unwrap();
    assert!(cell.take().is_none());
    assert_eq!(cell.with(|_| ()), None);
    cell.put(thing);
    assert_eq!(cell.with(|n| std::mem::replace(n, 2)), Some(1));
    assert_eq!(cell.replace(Some(Box::new(3))).as_deref(), Some(&2));
    assert_eq!(cell.take().map(|n| *n), Some(3));
}

// Goal: a queue takes an offered resource, and the control thread gets a recalled resource back.
#[cfg(not(loom))]
#[test]
fn recalled_resource_returns_to_the_control_thread() {
    let cell = RecallCell::empty();
    assert!(cell.is_recalled() && cell.take_offered().is_none());
    cell.offer(Box::new(1));
    let thing = cell.take_offered().unwrap();
    assert!(cell.take_offered().is_none() && cell.take().is_none());
    assert_eq!(cell.with(|_| ()), None);
    cell.put_back(thing);
    let thing = cell.take_offered().unwrap();
    cell.recall();
    cell.put_back(thing);
    assert!(cell.take_offered().is_none());
    assert_eq!(cell.with(|n| *n), Some(1));
    assert_eq!(cell.take().as_deref(), Some(&1));
}

#[cfg(loom)]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Takes the resource in another thread, increments it and puts it back. The thread returns
    /// true if it got the resource.
    fn queue(cell: &Arc<RecallCell<u32>>) -> thread::JoinHandle<bool> {
        let cell = cell.clone();
        thread::spawn(move || {
            let Some(mut thing) = cell.take_offered() else { return false };
            *thing += 1;
            cell.put_back(thing);
            true
        })
    }

    // Goal: two queues and the control thread never lose or double the resource, and after a recall
    // no queue takes it.
    #[test]
    fn recalled_resource_has_one_owner() {
        loom::model(|| {
            let cell = Arc::new(RecallCell::empty());
            cell.offer(Box::new(0));
            let queues = [queue(&cell), queue(&cell)];
            cell.recall();
            let uses = queues.map(|queue| u32::from(queue.join().unwrap()));
            assert!(cell.take_offered().is_none());
            assert_eq!(cell.take().as_deref(), Some(&(uses[0] + uses[1])));
        });
    }

    // Goal: at least one of two queues gets the resource, and afterwards the resource can be taken
    // again: no flag hides it.
    #[test]
    fn resource_that_was_put_back_is_found() {
        loom::model(|| {
            let cell = Arc::new(RecallCell::new(0));
            let first = queue(&cell);
            let second = queue(&cell);
            let uses = [first.join().unwrap(), second.join().unwrap()];
            assert!(uses[0] || uses[1]);
            let uses = uses.map(u32::from);
            assert_eq!(cell.take_offered().as_deref(), Some(&(uses[0] + uses[1])));
        });
    }

    // Goal: a take during a hand-over finds the resource or nothing, and never loses it.
    #[test]
    fn contended_take_loses_nothing() {
        loom::model(|| {
            let cell = Arc::new(HandOver::new(0));
            let other = cell.clone();
            let taker = thread::spawn(move || other.with(|n| *n += 1).is_some());
            let ours = cell.with(|n| *n += 1).is_some();
            let uses = u32::from(ours) + u32::from(taker.join().unwrap());
            assert_eq!(cell.take().as_deref(), Some(&uses));
        });
    }
}
