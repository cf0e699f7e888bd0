//! All orders in which members arrive, are lost and return; a failure at every step of one order.

use super::driver::Driver;
use crate::OnLoss;

fn permutations(items: usize) -> Vec<Vec<usize>> {
    if items == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(items - 1);
    let at = |place: usize| {
        shorter.iter().map(move |order| {
            let mut order = order.clone();
            order.insert(place, items - 1);
            order
        })
    };
    (0..items).flat_map(at).collect()
}

/// Runs a group with members that arrive, are lost and return in three orders; call number `step`
/// fails if it is reached. Returns true if that call was reached.
fn run_orders(members: usize, on_loss: OnLoss, orders: [&[usize]; 3], step: Option<u32>) -> bool {
    let [arrive, go, come] = orders;
    let mut driver = Driver::new(members, on_loss, 2 * members as u16 + 1);
    driver.settle();
    assert!(driver.running.is_none());
    *driver.failures.lock().unwrap() = step;
    for (number, &member) in arrive.iter().enumerate() {
        driver.set_up(member, true);
        driver.settle();
        let all = number + 1 == members;
        assert_eq!(driver.running.is_some(), all, "after the arrival of {arrive:?}");
        if !all {
            let why = driver.downs.last().unwrap();
            let start = format!("group: {} of {members} members up: waiting for ", number + 1);
            assert!(why.starts_with(&start) && why.contains("(no carrier)"), "{why}");
        }
    }
    for (number, &member) in go.iter().enumerate() {
        driver.set_up(member, false);
        driver.settle();
        let goes_on = on_loss == OnLoss::Degrade && number + 1 < members;
        let failed = driver.failures.lock().unwrap().is_none() && step.is_some();
        assert!(driver.running.is_some() == goes_on || failed, "after the loss of {member}");
    }
    for (number, &member) in come.iter().enumerate() {
        driver.set_up(member, true);
        driver.settle();
        assert_eq!(driver.running.is_some(), number + 1 == members, "after the return");
    }
    // Lose and return each member once more, while the others are up.
    for &member in go.iter().filter(|_| arrive.is_sorted()) {
        driver.set_up(member, false);
        driver.settle();
        driver.set_up(member, true);
        driver.settle();
        assert!(driver.running.is_some());
    }
    let failed = driver.failures.lock().unwrap().is_none();
    driver.end();
    failed
}

// Goal: for every order in which 2 to 4 members arrive, are lost and return, the group comes up
// when the last member is up. With `Destroy`, the group goes down at the first loss; with
// `Degrade`, at the loss of the last member. The primary stays the same, every channel has its
// queue, and no channel is on a lost member. Each frame is counted at the queue that accepted it,
// and nothing stays open at the end.
#[test]
fn every_order_of_two_to_four_members() {
    for members in 2..=4 {
        let orders = permutations(members);
        for on_loss in [OnLoss::Destroy, OnLoss::Degrade] {
            for arrive in &orders {
                for go in &orders {
                    for come in &orders {
                        run_orders(members, on_loss, [arrive, go, come], None);
                    }
                }
            }
        }
    }
}

// Goal: with a failure at each call of each member in turn, completed steps are undone in reverse
// order. No member is opened twice, and the group recovers.
#[test]
fn completed_steps_are_undone_on_failure() {
    for members in 2..=4 {
        let orders = permutations(members);
        let own: Vec<usize> = (0..members).collect();
        for on_loss in [OnLoss::Destroy, OnLoss::Degrade] {
            for (arrive, go) in orders.iter().flat_map(|a| orders.iter().map(move |b| (a, b))) {
                // Test four members only in one order of arrival and one order of return.
                let all = if members < 4 { &orders[..] } else { std::slice::from_ref(&own) };
                let few = members == 4 && *arrive != own;
                for come in all.iter().filter(|_| !few) {
                    let mut step = 0;
                    while run_orders(members, on_loss, [arrive, go, come], Some(step)) {
                        step += 1;
                    }
                    assert!(step >= 2 * members as u32, "too few steps could fail: {step}");
                }
            }
        }
    }
}
