use std::io::Read;
use std::os::fd::AsFd;

use super::*;

fn ranges(texts: &[&'static [u8]]) -> Vec<RawRange> {
    texts.iter().map(|text| RawRange::new(text.as_ptr().cast_mut(), text.len())).collect()
}

/// Creates a ring, if this kernel permits it.
fn ring() -> Option<WriteRing> {
    match WriteRing::new() {
        Ok(ring) => Some(ring),
        Err(e) => {
            println!("skipped: no io_uring: {e}");
            None
        }
    }
}

/// Pipe with a non-blocking write end.
fn pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    crate::process::set_nonblocking(writer.as_fd()).unwrap();
    (reader, writer)
}

// Goal: a full chain of writes arrives complete and in order, in one call; a ring is reusable.
#[test]
fn chain_is_written_in_order() {
    let Some(mut ring) = ring() else { return };
    let (mut reader, writer) = pipe();
    let texts: Vec<&'static [u8]> =
        (0..WRITES_MAX as u8).map(|i| &*Vec::leak(vec![i; 3])).collect();
    let all = ranges(&texts);
    let writes: Vec<&[RawRange]> = all.chunks(1).collect();
    for round in 0..3 {
        // SAFETY: the texts are static.
        let done = unsafe { ring.write_each(writer.as_fd(), writes.iter().copied()) };
        assert_eq!((done.writes, done.calls), (WRITES_MAX, 1 + u64::from(round == 0)));
        assert!(done.broken.is_none());
        let mut got = [0; 3 * WRITES_MAX];
        reader.read_exact(&mut got).unwrap();
        assert_eq!(got.to_vec(), texts.concat());
    }
}

// Goal: no write follows the first failure, although it would fit, and the call returns immediately
// although the failed write could block.
#[test]
fn chain_ends_at_the_first_failure() {
    let Some(mut ring) = ring() else { return };
    let (mut reader, writer) = pipe();
    // All sixteen pages of a pipe, the last one partly filled: another page does not fit, a byte
    // does.
    let large: &'static [u8] = Vec::leak(vec![7; 15 * 4096]);
    let page: &'static [u8] = Vec::leak(vec![8; 4096]);
    let all = ranges(&[large, b"a", page, b"b"]);
    let writes: Vec<&[RawRange]> = all.chunks(1).collect();
    // SAFETY: the texts are static.
    let done = unsafe { ring.write_each(writer.as_fd(), writes.iter().copied()) };
    assert!(done.broken.is_none(), "{done:?}");
    assert_eq!(done.writes, 2, "{done:?}");
    drop(writer);
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    assert!(!got.contains(&b'b'), "a later write has overtaken");
    assert_eq!(got.len(), 1 + large.len());
}

// Goal: a descriptor that is not writable takes no write, and the ring stays usable.
#[test]
fn first_failure_writes_nothing() {
    let Some(mut ring) = ring() else { return };
    let (reader, _writer) = pipe();
    let all = ranges(&[b"a", b"b"]);
    for _ in 0..3 {
        // SAFETY: the texts are static.
        let done = unsafe { ring.write_each(reader.as_fd(), all.chunks(1)) };
        assert_eq!(done.writes, 0);
        assert!(done.broken.is_none(), "{done:?}");
    }
}

// Goal: a ring of another thread reports an error and writes nothing.
#[test]
fn ring_fails_on_another_thread() {
    let Some(mut ring) = ring() else { return };
    let (_reader, writer) = pipe();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let all = ranges(&[b"a", b"b"]);
            // SAFETY: the texts are static.
            unsafe { ring.write_each(writer.as_fd(), all.chunks(1)) }.writes
        });
        assert_eq!(first.join().unwrap(), 2);
    });
    let all = ranges(&[b"c", b"d"]);
    // SAFETY: the texts are static.
    let done = unsafe { ring.write_each(writer.as_fd(), all.chunks(1)) };
    assert_eq!(done.writes, 0);
    assert!(done.broken.is_some());
}

// Goal: a descriptor that is not a TAP queue is rejected.
#[test]
fn other_descriptors_are_rejected() {
    let (_reader, writer) = pipe();
    assert!(supports(writer.as_fd()).is_err());
}
