//! Long random sequences of events.

use proptest::prelude::*;

use super::driver::Driver;
use crate::OnLoss;

#[derive(Clone, Debug)]
enum Step {
    Set(usize, bool),
    /// Loss and return of a member between two polls.
    Blink(usize),
    Resize(u16),
    FailIn(u32),
    Turn,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..8, any::<bool>()).prop_map(|(member, up)| Step::Set(member, up)),
        1 => (0usize..8).prop_map(Step::Blink),
        2 => (2u16..=16).prop_map(Step::Resize),
        1 => (0u32..8).prop_map(Step::FailIn),
        4 => Just(Step::Turn),
    ]
}

proptest! {
    // Goal: for any sequence of events between any two polls, all invariants hold. The group comes
    // up when all members are up and no call fails.
    #[test]
    fn invariants_hold_for_any_events(
        members in 2usize..=8,
        degrade: bool,
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let on_loss = if degrade { OnLoss::Degrade } else { OnLoss::Destroy };
        let mut driver = Driver::new(members, on_loss, members as u16);
        for step in steps {
            match step {
                Step::Set(member, up) => driver.set_up(member % members, up),
                Step::Blink(member) => {
                    driver.set_up(member % members, false);
                    driver.set_up(member % members, true);
                }
                Step::Resize(channels) => {
                    // Poll before a change, as the engine does.
                    driver.turn();
                    let _ = driver.resize(channels.max(members as u16));
                }
                Step::FailIn(calls) => *driver.failures.lock().unwrap() = Some(calls),
                Step::Turn => driver.settle(),
            }
        }
        *driver.failures.lock().unwrap() = None;
        (0..members).for_each(|member| driver.set_up(member, true));
        driver.settle();
        prop_assert!(driver.running.is_some(), "{:?}", driver.downs.last());
        driver.end();
    }
}
