//! Supported helper functions, with the kernel's numbers.

/// Type of a helper argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arg {
    Context,
    Number,
    /// A map: a devmap if `devices`, otherwise a map of another kind.
    Map {
        devices: bool,
    },
    /// Key of the preceding map argument.
    Key,
    /// Value of the preceding map argument.
    Value,
    /// Memory; the next argument is its size.
    Memory {
        write: bool,
    },
    /// Memory; the next argument is its size. No memory is required for size 0.
    MemoryOrNull,
}

/// Type of a helper's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returns {
    Number,
    /// A number below 2^16.
    Small,
    /// Pointer to a value of the map, or null.
    Value,
}

/// Signature of one helper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Helper {
    pub(crate) number: i32,
    pub(crate) name: &'static str,
    pub(crate) args: &'static [Arg],
    pub(crate) returns: Returns,
    /// True if the call invalidates all packet pointers.
    pub(crate) moves_packet: bool,
    pub(crate) writes_map: bool,
}

pub(crate) const MAP_LOOKUP: i32 = 1;
pub(crate) const MAP_UPDATE: i32 = 2;
pub(crate) const MAP_DELETE: i32 = 3;
pub(crate) const KTIME: i32 = 5;
pub(crate) const TRACE: i32 = 6;
pub(crate) const RANDOM: i32 = 7;
pub(crate) const PROCESSOR: i32 = 8;
pub(crate) const REDIRECT: i32 = 23;
pub(crate) const CSUM_DIFF: i32 = 28;
pub(crate) const ADJUST_HEAD: i32 = 44;
pub(crate) const REDIRECT_MAP: i32 = 51;
pub(crate) const ADJUST_META: i32 = 54;
pub(crate) const ADJUST_TAIL: i32 = 65;
pub(crate) const KTIME_BOOT: i32 = 125;
pub(crate) const BUFF_LEN: i32 = 188;
pub(crate) const LOAD_BYTES: i32 = 189;
pub(crate) const STORE_BYTES: i32 = 190;

const MAP: Arg = Arg::Map { devices: false };
const READS: Arg = Arg::Memory { write: false };
const WRITES: Arg = Arg::Memory { write: true };

const fn helper(number: i32, name: &'static str, args: &'static [Arg]) -> Helper {
    let returns = Returns::Number;
    Helper { number, name, args, returns, moves_packet: false, writes_map: false }
}

const fn moves(number: i32, name: &'static str) -> Helper {
    let args = &[Arg::Context, Arg::Number];
    Helper { moves_packet: true, ..helper(number, name, args) }
}

const fn writes(number: i32, name: &'static str, args: &'static [Arg]) -> Helper {
    Helper { writes_map: true, ..helper(number, name, args) }
}

/// All supported helpers.
pub(crate) const HELPERS: [Helper; 17] = [
    Helper {
        returns: Returns::Value,
        ..helper(MAP_LOOKUP, "bpf_map_lookup_elem", &[MAP, Arg::Key])
    },
    writes(MAP_UPDATE, "bpf_map_update_elem", &[MAP, Arg::Key, Arg::Value, Arg::Number]),
    writes(MAP_DELETE, "bpf_map_delete_elem", &[MAP, Arg::Key]),
    helper(KTIME, "bpf_ktime_get_ns", &[]),
    helper(TRACE, "bpf_trace_printk", &[READS, Arg::Number]),
    helper(RANDOM, "bpf_get_prandom_u32", &[]),
    Helper { returns: Returns::Small, ..helper(PROCESSOR, "bpf_get_smp_processor_id", &[]) },
    helper(REDIRECT, "bpf_redirect", &[Arg::Number, Arg::Number]),
    helper(
        CSUM_DIFF,
        "bpf_csum_diff",
        &[Arg::MemoryOrNull, Arg::Number, Arg::MemoryOrNull, Arg::Number, Arg::Number],
    ),
    moves(ADJUST_HEAD, "bpf_xdp_adjust_head"),
    helper(
        REDIRECT_MAP,
        "bpf_redirect_map",
        &[Arg::Map { devices: true }, Arg::Number, Arg::Number],
    ),
    moves(ADJUST_META, "bpf_xdp_adjust_meta"),
    moves(ADJUST_TAIL, "bpf_xdp_adjust_tail"),
    helper(KTIME_BOOT, "bpf_ktime_get_boot_ns", &[]),
    helper(BUFF_LEN, "bpf_xdp_get_buff_len", &[Arg::Context]),
    helper(LOAD_BYTES, "bpf_xdp_load_bytes", &[Arg::Context, Arg::Number, WRITES, Arg::Number]),
    helper(STORE_BYTES, "bpf_xdp_store_bytes", &[Arg::Context, Arg::Number, READS, Arg::Number]),
];

/// Helpers that programs often use and that are not supported, for error messages.
const OTHERS: [(i32, &str); 10] = [
    (4, "bpf_probe_read"),
    (12, "bpf_tail_call"),
    (25, "bpf_perf_event_output"),
    (69, "bpf_fib_lookup"),
    (84, "bpf_sk_lookup_tcp"),
    (85, "bpf_sk_lookup_udp"),
    (93, "bpf_spin_lock"),
    (130, "bpf_ringbuf_output"),
    (131, "bpf_ringbuf_reserve"),
    (181, "bpf_loop"),
];

impl Helper {
    /// Finds a helper by its number; the error says that it is not supported.
    pub(crate) fn find(number: i32) -> Result<&'static Self, String> {
        if let Some(helper) = HELPERS.iter().find(|helper| helper.number == number) {
            return Ok(helper);
        }
        let other = OTHERS.iter().find(|(n, _)| *n == number);
        let name = other.map_or(String::new(), |(_, name)| format!(" ({name})"));
        Err(format!("helper {number}{name} is not supported"))
    }
}
