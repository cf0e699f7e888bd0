use super::*;

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        // Compute the next number of the splitmix64 generator.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Runs generated programs until `want` were accepted. Returns the number of generated programs.
fn run(seed: u64, want: u32) -> u32 {
    let mut numbers = Numbers(seed);
    let (mut made, mut ran) = (0, 0);
    while ran < want {
        made += 1;
        let data: Vec<u8> = (0..70).flat_map(|_| numbers.next().to_le_bytes()).collect();
        match any_program(&data) {
            Ok(FuzzOutcome::Ran) => ran += 1,
            Ok(FuzzOutcome::Refused) => {}
            Err(why) => panic!("seed {seed}, program {made}: {why}"),
        }
        assert!(made < 100 * want + 1000, "only {ran} of {made} were accepted");
    }
    made
}

// Goal: accepted generated programs stay inside their memory and match the verifier's claims at
// each instruction. They execute at most as many instructions as the verifier walked. Both runtimes
// have the same effects as the reference machine. MQNET_XDP_PROGRAMS sets the number of programs.
#[test]
fn accepted_generated_programs_stay_inside_their_memory() {
    let number = |name: &str, or: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
    };
    let want = number("MQNET_XDP_PROGRAMS", 2000) as u32;
    let made = run(number("MQNET_XDP_SEED", 1), want);
    assert!(made > want, "none was refused");
}
