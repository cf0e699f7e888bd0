use std::io::Read;
use std::os::fd::AsFd;

use super::*;

fn ranges(texts: &[&'static [u8]]) -> Vec<RawRange> {
    texts.iter().map(|text| RawRange::new(text.as_ptr().cast_mut(), text.len())).collect()
}

/// Creates a ring, or returns `None` if this kernel does not permit it.
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

// Goal: a full chain of writes arrives complete and in order, in one call, and a ring is reusable.
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

// Goal: no write follows the first failure, although a later write would fit. The call returns
// immediately, although the failed write could block.
#[test]
fn chain_ends_at_the_first_failure() {
    let Some(mut ring) = ring() else { return };
    let (mut reader, writer) = pipe();
    // All sixteen pages of a pipe, the last one partly filled: another page does not fit, a byte
    // does.
    let page_len = crate::memory::small_page();
    let large: &'static [u8] = Vec::leak(vec![7; 15 * page_len]);
    let page: &'static [u8] = Vec::leak(vec![8; page_len]);
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

// Goal: accepted writes are complete when the call returns, although a wait failed. The number of
// failed waits is limited.
#[test]
fn failed_waits_are_repeated_until_writes_are_complete() {
    let Some(mut ring) = ring() else { return };
    let (mut reader, writer) = pipe();
    ring.enable(&mut 0).unwrap();
    for failures in [1, u32::MAX] {
        let all: &'static [RawRange] = Vec::leak(ranges(&[b"a", b"b"]));
        for (i, range) in all.iter().enumerate() {
            let fd = Fd(writer.as_raw_fd());
            let write = opcode::Writev::new(fd, (&raw const *range).cast(), 1).build();
            let linked = if i == 0 { squeue::Flags::IO_LINK } else { squeue::Flags::empty() };
            // SAFETY: ranges and texts are never freed.
            unsafe { ring.ring.submission().push(&write.flags(linked)) }.unwrap();
        }
        assert_eq!(ring.ring.submit().unwrap(), 2);
        let (mut done, mut tries) = (Written { writes: 0, calls: 0, broken: None }, 0);
        ring.wait_for(2, &mut done, |ring, wanted| {
            tries += 1;
            match tries > failures {
                true => ring.submit_and_wait(wanted as usize),
                false => Err(io::Error::from_raw_os_error(libc::EBUSY)),
            }
        });
        assert_eq!(done.broken.as_ref().and_then(io::Error::raw_os_error), Some(libc::EBUSY));
        if failures == 1 {
            assert_eq!((done.writes, done.calls), (2, 2), "{done:?}");
            let mut got = [0; 2];
            reader.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"ab");
        } else {
            assert_eq!(done.calls, u64::from(WAIT_TRIES));
        }
    }
}

// Goal: a descriptor that is not a TAP queue is rejected.
#[test]
fn other_descriptors_are_rejected() {
    let (_reader, writer) = pipe();
    assert!(supports(writer.as_fd()).is_err());
}
