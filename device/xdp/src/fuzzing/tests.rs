use super::*;

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Runs until `want` programs were accepted; returns how many were made.
fn run(seed: u64, want: u32) -> u32 {
    let mut numbers = Numbers(seed);
    let (mut made, mut ran) = (0, 0);
    while ran < want {
        made += 1;
        let data: Vec<u8> = (0..70).flat_map(|_| numbers.next().to_le_bytes()).collect();
        match any_program(&data) {
            Ok(Outcome::Ran) => ran += 1,
            Ok(Outcome::Refused) => {}
            Err(why) => panic!("seed {seed}, program {made}: {why}"),
        }
        assert!(made < 100 * want + 1000, "only {ran} of {made} were accepted");
    }
    made
}

// Goal: of programs that nobody wrote those that are accepted stay in their memory, are what the
// verifier says that they are at each instruction, end when it says, and do the same in both
// runtimes as on a machine that checks everything. MQNET_XDP_PROGRAMS asks for more of them.
#[test]
fn any_program_that_is_accepted_is_harmless() {
    let number = |name: &str, or: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
    };
    let want = number("MQNET_XDP_PROGRAMS", 2000) as u32;
    let made = run(number("MQNET_XDP_SEED", 1), want);
    assert!(made > want, "none was refused");
}
