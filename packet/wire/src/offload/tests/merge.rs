//! Coalescing, verified by segmentation.

use super::*;

/// Small frame.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Small {
    hdr: VnetHdr,
    bytes: Vec<u8>,
}

/// Properties in which the frames of a stream differ.
#[derive(Clone, Debug)]
struct Step {
    payload: usize,
    /// True if the frame belongs to the second of the two flows.
    flow: bool,
    pushes: bool,
    /// Checksum state: 0 is pending, 1 is complete with `DATA_VALID` (which is not trusted), and 2
    /// is complete without a flag.
    csum: u8,
    /// Corruption, as offsets and values of changed bytes. `fixed_up` recomputes the checksums.
    corruption: Vec<(usize, u8)>,
    fixed_up: bool,
    /// Missing sequence numbers before this frame.
    gap: u32,
}

#[derive(Clone, Debug)]
struct Flow {
    layer: Layer,
    is_v6: bool,
    is_tcp: bool,
    tags: usize,
    options: usize,
    seq: u32,
    id: u16,
    seed: u8,
}

impl Flow {
    fn ip(&self) -> usize {
        if self.layer == Layer::Ip { 0 } else { 14 + 4 * self.tags }
    }

    fn transport(&self) -> usize {
        self.ip() + if self.is_v6 { 40 } else { 20 }
    }

    fn field(&self) -> usize {
        self.transport() + if self.is_tcp { 16 } else { 6 }
    }

    /// Creates the next frame. Its checksums are correct unless the step corrupts them.
    fn next(&mut self, step: &Step) -> Small {
        let mut bytes = Vec::new();
        if self.layer == Layer::Ethernet {
            bytes.extend([self.seed; 12]);
            (0..self.tags).for_each(|tag| bytes.extend([0x81, 0, 0, tag as u8]));
            bytes.extend(if self.is_v6 { [0x86, 0xdd] } else { [8, 0] });
        }
        let protocol = if self.is_tcp { 6 } else { 17 };
        let header = if self.is_tcp { 20 + 4 * self.options } else { 8 };
        if self.is_v6 {
            bytes.extend([0x60, 1, 2, 3]);
            bytes.extend(((header + step.payload) as u16).to_be_bytes());
            bytes.extend([protocol, 64]);
            bytes.extend([self.seed; 32]);
        } else {
            bytes.extend([0x45, 0]);
            bytes.extend(((20 + header + step.payload) as u16).to_be_bytes());
            bytes.extend(self.id.to_be_bytes());
            bytes.extend([0x40, 0, 64, protocol, 0, 0]);
            bytes.extend([self.seed; 8]);
            self.id = self.id.wrapping_add(1);
        }
        bytes.extend([self.seed, 1, 0, 80]);
        if self.is_tcp {
            self.seq = self.seq.wrapping_add(step.gap);
            bytes.extend(self.seq.to_be_bytes());
            bytes.extend([1, 2, 3, 4, (5 + self.options as u8) << 4]);
            bytes.extend([if step.pushes { 0x18 } else { 0x10 }, 2, 0, 0, 0, 0, 0]);
            bytes.extend((0..4 * self.options).map(|at| at as u8));
            self.seq = self.seq.wrapping_add(step.payload as u32);
        } else {
            bytes.extend(((8 + step.payload) as u16).to_be_bytes());
            bytes.extend([0, 0]);
        }
        bytes.extend((0..step.payload).map(|at| (at * 7) as u8 ^ self.seed));
        self.fix_checksums(&mut bytes);
        for (at, byte) in &step.corruption {
            let at = at % bytes.len();
            bytes[at] = *byte;
        }
        if step.fixed_up {
            self.fix_checksums(&mut bytes);
        }
        self.with_checksum(step.csum, bytes)
    }

    fn fix_checksums(&self, bytes: &mut [u8]) {
        let (ip, transport, field) = (self.ip(), self.transport(), self.field());
        if !self.is_v6 {
            bytes[ip + 10..ip + 12].fill(0);
            let sum = !slow_sum(&[&bytes[ip..transport]]) as u16;
            bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        }
        bytes[field..field + 2].fill(0);
        let sum = match !self.pseudo_and(bytes, &bytes[transport..]) as u16 {
            0 => 0xffff,
            sum => sum,
        };
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }

    fn pseudo_and(&self, bytes: &[u8], rest: &[u8]) -> u32 {
        let ip = self.ip();
        let addresses = if self.is_v6 { &bytes[ip + 8..ip + 40] } else { &bytes[ip + 12..ip + 20] };
        let length = ((bytes.len() - self.transport()) as u32).to_be_bytes();
        slow_sum(&[addresses, &length, &[0, if self.is_tcp { 6 } else { 17 }], rest])
    }

    fn with_checksum(&self, csum: u8, mut bytes: Vec<u8>) -> Small {
        let (transport, field) = (self.transport(), self.field());
        let none = VnetFields::default();
        let fields = match csum {
            0 => {
                let sum = self.pseudo_and(&bytes, &[]) as u16;
                bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
                let (csum_start, csum_offset) = (transport as u16, (field - transport) as u16);
                VnetFields { flags: 1, csum_start, csum_offset, ..none }
            }
            1 => VnetFields { flags: 2, ..none },
            _ => none,
        };
        Small { hdr: VnetHdr::new(fields), bytes }
    }
}

fn flow() -> impl Strategy<Value = Flow> {
    let kind = (any::<bool>(), any::<bool>(), any::<bool>());
    let start = (any::<u32>(), any::<u16>());
    (kind, 0usize..3, 0usize..11, start, any::<u8>()).prop_map(
        |((is_ip, is_v6, is_tcp), tags, options, (seq, id), seed)| {
            let layer = if is_ip { Layer::Ip } else { Layer::Ethernet };
            // Use numbers that wrap soon in half of the flows.
            let wraps = (u32::MAX - seq % 5000, u16::MAX - 3);
            let (seq, id) = if seed % 2 == 0 { wraps } else { (seq, id) };
            Flow { layer, is_v6, is_tcp, tags, options, seq, id, seed }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let payload = prop_oneof![6 => Just(1000usize), 1 => 0usize..1001, 1 => Just(20_000usize)];
    let corruption = prop_oneof![
        9 => Just(Vec::new()),
        1 => prop::collection::vec((0usize..140, any::<u8>()), 1..3),
    ];
    let odd = || prop_oneof![8 => Just(false), 1 => Just(true)];
    let csum = prop_oneof![3 => Just(0u8), 1 => Just(1u8), 3 => Just(2u8)];
    let gap = prop_oneof![9 => Just(0u32), 1 => any::<u32>()];
    (payload, odd(), odd(), csum, corruption, any::<bool>(), gap).prop_map(
        |(payload, flow, pushes, csum, corruption, fixed_up, gap)| {
            let fixed_up = fixed_up || corruption.is_empty();
            Step { payload, flow, pushes, csum, corruption, fixed_up, gap }
        },
    )
}

fn head(frame: &Small) -> &[u8] {
    &frame.bytes[..frame.bytes.len().min(MERGED_HEADERS_MAX)]
}

/// Parses the frame and verifies its checksum.
fn part(frame: &Small, layer: Layer) -> Option<MergeCandidate> {
    let part = MergeCandidate::find(frame.hdr, frame.bytes.len() as u32, head(frame), layer)?;
    let payload = || {
        let mut sum = Sum::new();
        sum.bytes(&frame.bytes[part.headers()..]);
        let sum = u64::from(u16::from_ne_bytes(sum.unfinished()));
        [(sum, frame.bytes.len() - part.headers())].into_iter()
    };
    part.is_sound(payload).then_some(part)
}

/// Coalesces consecutive frames. Each result has the number of its source frames.
fn merge(frames: &[Small], layer: Layer, frame_max: u32) -> Vec<(usize, Small)> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < frames.len() {
        let mut n = 1;
        let mut one = frames[at].clone();
        if let Some(first) = part(&one, layer) {
            let mut merge = Merge::new(first, frame_max);
            while let Some(next) = frames.get(at + n).and_then(|frame| part(frame, layer)) {
                if !merge.goes_on_with(&next) {
                    break;
                }
                merge.push(&next);
                one.bytes.extend(&frames[at + n].bytes[next.headers()..]);
                n += 1;
            }
            if n > 1 {
                assert_eq!((merge.len() as usize, merge.count() as usize), (one.bytes.len(), n));
                one.hdr = merge.finish(&mut one.bytes);
            }
        }
        out.push((n, one));
        at += n;
    }
    out
}

fn filled(hdr: VnetHdr, mut bytes: Vec<u8>) -> Small {
    if !hdr.needs_checksum() {
        return Small { hdr, bytes };
    }
    fill_checksum(hdr, &mut bytes, std::iter::empty()).expect("a checksum");
    Small { hdr: VnetHdr::default(), bytes }
}

/// Segments of a large frame, or the whole small frame, with checksums filled in.
fn cut(frame: &Small, layer: Layer) -> Vec<Small> {
    let len = frame.bytes.len() as u32;
    assert_eq!(frame.hdr.check(len), Ok(()));
    if !frame.hdr.is_large() {
        return vec![filled(frame.hdr, frame.bytes.clone())];
    }
    let head = &frame.bytes[..frame.bytes.len().min(UNFINISHED_HEADERS_MAX)];
    let cut = Cut::new(frame.hdr, len, head, layer).expect("it can be cut");
    let segment = |number| {
        let mut out = vec![0; cut.headers()];
        let segment = cut.segment(number, head, &mut out);
        out.extend(&frame.bytes[segment.at..][..segment.payload]);
        filled(segment.hdr, out)
    };
    (0..cut.count()).map(segment).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    // Goal: for any stream, segmentation of the coalesced frames restores every byte. A wrong
    // checksum stays wrong, and no result exceeds its limit.
    #[test]
    fn segmentation_restores_coalesced_frames(
        mut flows in prop::array::uniform2(flow()), steps in prop::collection::vec(step(), 1..60),
        same: bool, frame_max in prop_oneof![Just(65_554u32), 500u32..10_000],
    ) {
        flows[1] = if same { flows[0].clone() } else { flows[1].clone() };
        flows[1].layer = flows[0].layer;
        let layer = flows[0].layer;
        let frames: Vec<Small> =
            steps.iter().map(|step| flows[usize::from(step.flow)].next(step)).collect();
        let merged = merge(&frames, layer, frame_max);
        let mut at = 0;
        for (n, frame) in &merged {
            prop_assert!(*n == 1 || frame.bytes.len() as u32 <= frame_max.min(65_535 + 62));
            let back = cut(frame, layer);
            prop_assert_eq!(back.len(), *n);
            for (back, was) in back.iter().zip(&frames[at..]) {
                let was = cut(was, layer).remove(0);
                let differ = was.bytes.iter().zip(&back.bytes).filter(|(a, b)| a != b).count();
                prop_assert_eq!(back.bytes.len(), was.bytes.len());
                prop_assert!(differ == 0, "{} bytes differ", differ);
            }
            at += n;
        }
        prop_assert_eq!(at, frames.len());
    }

    // Goal: a stream of full frames is coalesced into frames of the maximum size.
    #[test]
    fn full_frames_are_coalesced(mut flow in flow(), begun: bool, n in 2usize..120) {
        let csum = if begun { 0 } else { 2 };
        let frames: Vec<Small> = (0..n).map(|_| flow.next(&plain(false, 1000, csum))).collect();
        let merged = merge(&frames, flow.layer, 65_554);
        prop_assert!(merged.len() <= n.div_ceil(64) + 1, "{} of {}", merged.len(), n);
    }

    // Goal: headers written by a peer cause no panic, and accepted headers are within the frame.
    #[test]
    fn hostile_parts_do_not_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200), hdr: [u8; 12], len: u32, is_ip: bool,
        mut flow in flow(), step in step(), shown in 0usize..200,
    ) {
        let layer = if is_ip { Layer::Ip } else { Layer::Ethernet };
        let _ = MergeCandidate::find(VnetHdr::from_bytes(&hdr), len, &bytes, layer);
        let frame = flow.next(&step);
        let bytes = &frame.bytes[..shown.min(frame.bytes.len())];
        let part = MergeCandidate::find(frame.hdr, len, bytes, layer);
        if let Some(part) = part {
            prop_assert!(part.headers() <= shown && part.headers() < len as usize);
        }
    }
}

fn plain(pushes: bool, payload: usize, csum: u8) -> Step {
    Step { payload, flow: false, pushes, csum, corruption: Vec::new(), fixed_up: true, gap: 0 }
}

fn tcp4() -> Flow {
    let (layer, seq, id) = (Layer::Ethernet, 1, 7);
    Flow { layer, is_v6: false, is_tcp: true, tags: 0, options: 3, seq, id, seed: 5 }
}

/// Numbers of source frames per result. `change` modifies the frames first.
fn coalesced_counts(steps: &[Step], change: impl Fn(usize, &mut Small, &Flow)) -> Vec<usize> {
    let mut flow = tcp4();
    let mut frames: Vec<Small> = steps.iter().map(|step| flow.next(step)).collect();
    frames.iter_mut().enumerate().for_each(|(at, frame)| change(at, frame, &flow));
    merge(&frames, Layer::Ethernet, 65_554).iter().map(|(n, _)| *n).collect()
}

/// Sets a byte of one frame and recomputes its checksums.
fn with(number: usize, place: usize, value: u8) -> impl Fn(usize, &mut Small, &Flow) {
    move |at, frame, flow| {
        if at == number {
            frame.bytes[place] = value;
            flow.fix_checksums(&mut frame.bytes);
            *frame = flow.with_checksum(0, std::mem::take(&mut frame.bytes));
        }
    }
}

fn unchanged(_: usize, _: &mut Small, _: &Flow) {}

// Goal: coalescing ends at a PSH flag, a shorter frame, a longer frame, or a gap. Frames without
// data are never coalesced.
#[test]
fn sequence_breaks_end_coalescing() {
    let full = || plain(false, 1000, 0);
    assert_eq!(coalesced_counts(&[full(), full(), full(), full()], unchanged), [4]);
    assert_eq!(
        coalesced_counts(&[full(), plain(true, 1000, 0), full(), full()], unchanged),
        [2, 2]
    );
    assert_eq!(
        coalesced_counts(&[full(), plain(false, 999, 0), full(), full()], unchanged),
        [2, 2]
    );
    assert_eq!(coalesced_counts(&[plain(false, 999, 0), full(), full()], unchanged), [1, 2]);
    assert_eq!(coalesced_counts(&[full(), Step { gap: 1, ..full() }, full()], unchanged), [1, 2]);
    assert_eq!(coalesced_counts(&[plain(false, 0, 0), plain(false, 0, 0)], unchanged), [1, 1]);
    let long = Step { payload: 20_000, ..full() };
    assert_eq!(
        coalesced_counts(&[long.clone(), long.clone(), long.clone(), long], unchanged),
        [3, 1]
    );
}

// Goal: coalescing ends at any other difference between headers. Frames with flags other than ACK
// and PSH, fragments, and frames with wrong checksums are never coalesced.
#[test]
fn header_differences_end_coalescing() {
    let four = vec![plain(false, 1000, 0); 4];
    for (place, value, why) in [
        (11, 9, "Ethernet address"),
        (15, 1, "type of service"),
        (20, 0, "may be fragmented"),
        (22, 63, "time to live"),
        (35, 9, "port"),
        (45, 9, "acknowledgement"),
        (49, 9, "window"),
        (53, 9, "urgent pointer"),
        (60, 9, "timestamp"),
    ] {
        assert_eq!(coalesced_counts(&four, with(2, place, value)), [2, 1, 1], "{why}");
    }
    assert_eq!(coalesced_counts(&four, with(2, 19, 99)), [2, 1, 1], "identification");
    for (place, value, why) in [
        (20, 0x60, "a fragment"),
        (47, 0x11, "FIN"),
        (47, 0x12, "SYN"),
        (47, 0x14, "RST"),
        (47, 0x30, "URG"),
        (47, 0x50, "ECE"),
        (47, 0x90, "CWR"),
        (47, 0x00, "no ACK"),
        (46, 0x81, "reserved bits"),
    ] {
        assert_eq!(coalesced_counts(&four, with(1, place, value)), [1, 1, 2], "{why}");
    }
    let corrupt_payload = |at: usize, frame: &mut Small, flow: &Flow| {
        flow.fix_checksums(&mut frame.bytes);
        *frame = flow.with_checksum(2, std::mem::take(&mut frame.bytes));
        frame.bytes[100] ^= u8::from(at == 1);
    };
    assert_eq!(coalesced_counts(&four, corrupt_payload), [1, 1, 2], "a wrong checksum");
}

// Goal: datagrams without a checksum, and frames longer than their datagram, are not coalesced.
#[test]
fn unverifiable_datagrams_are_not_coalesced() {
    let mut flow = Flow { is_tcp: false, ..tcp4() };
    let mut frames: Vec<Small> = (0..3).map(|_| flow.next(&plain(false, 500, 2))).collect();
    assert_eq!(merge(&frames, Layer::Ethernet, 65_554).len(), 1);
    frames[1].bytes[40..42].fill(0);
    assert_eq!(merge(&frames, Layer::Ethernet, 65_554).len(), 3);
    let mut padded: Vec<Small> = (0..2).map(|_| flow.next(&plain(false, 500, 1))).collect();
    padded.iter_mut().for_each(|frame| frame.bytes.push(0));
    assert_eq!(merge(&padded, Layer::Ethernet, 65_554).len(), 2);
}
