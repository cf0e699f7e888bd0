//! `-x`: indirection table and hash function of RSS.

use std::io;

use mqnet_control_api::{ApiError, Code, Rss};

use super::call::Call;
use super::json::{self, Json};
use super::number;

/// Hash functions that have a name in the kernel.
pub(super) const FUNCTIONS: [&str; 3] = ["toeplitz", "xor", "crc32"];

/// Largest number of an RSS context.
pub(super) const CONTEXT_MAX: u32 = u32::MAX - 1;

/// `-x`: prints the indirection table and the hash function. A valid `context` argument is refused
/// as not supported.
pub(super) fn show(call: &mut Call<'_>) -> io::Result<u8> {
    for pair in call.args.chunks(2) {
        match pair {
            [name, n] if name == "context" && number::ranged(n, 1, CONTEXT_MAX).is_some() => {}
            _ => return call.bad_command(),
        }
    }
    let asked: Result<Rss, ApiError> = call.device().and_then(|device| device.get("rss"));
    let rss = match asked {
        Ok(rss) => rss,
        Err(e) => return call.perror("Cannot get RX ring count", &e, 1),
    };
    if !call.args.is_empty() {
        let what = "Cannot get RX flow hash indir size and/or key size";
        return call.perror(what, &ApiError::new(Code::NotSupported, ""), 1);
    }
    if call.json {
        let table = rss.indirection_table.iter().map(|&queue| Json::from(queue)).collect();
        let mut fields = vec![("rss-indirection-table", Json::List(table))];
        if FUNCTIONS.contains(&rss.hash_function.as_str()) {
            fields.push(("rss-hash-function", Json::Text(rss.hash_function)));
        }
        return json::print(call, fields);
    }
    let (dev, rings) = (call.dev, rss.rings);
    writeln!(call.out, "RX flow hash indirection table for {dev} with {rings} RX ring(s):")?;
    if rss.indirection_table.is_empty() {
        writeln!(call.out, "Operation not supported")?;
    }
    for (row, queues) in rss.indirection_table.chunks(8).enumerate() {
        write!(call.out, "{:5}: ", row * 8)?;
        for queue in queues {
            write!(call.out, " {queue:5}")?;
        }
        writeln!(call.out)?;
    }
    writeln!(call.out, "RSS hash key:\nOperation not supported\nRSS hash function:")?;
    for name in FUNCTIONS {
        let on = if name == rss.hash_function { "on" } else { "off" };
        writeln!(call.out, "    {name}: {on}")?;
    }
    Ok(0)
}
