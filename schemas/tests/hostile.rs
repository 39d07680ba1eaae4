//! What can bytes from a damaged or hostile log do to a reader? An error, within bounded memory.
//!
//! One test only, because it counts the allocations of its whole process.

// A global allocator cannot be written without it; it only counts and delegates.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use anamnesis_domain::ids::{EventTag, RecallId, SourceTag};
use anamnesis_schemas::{Body, Envelope, Fingerprint, Header, PartHeader, Record, published};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most that decoding one object may hold, beside the copy of it that this test makes: one allocation
/// at the cap of 4 MiB, and the record read so far.
const MEMORY_MAX: usize = (4 << 20) + (64 << 10);

/// Tries every decoder that the object could be meant for.
fn read(object: &[u8]) -> bool {
    let mut is_read = Envelope::decode(object).is_ok();
    is_read |= Header::decode(object).is_ok();
    is_read |= PartHeader::decode(object).is_ok();
    if let Some((fingerprint, datum)) = object
        .get(2..)
        .and_then(|rest| rest.split_first_chunk::<8>())
    {
        let body = Body {
            schema: Fingerprint::from_bytes(*fingerprint),
            datum: datum.to_vec(),
        };
        let (event, source) = (
            EventTag::from_bytes([1; 16]),
            SourceTag::from_bytes([2; 16]),
        );
        is_read |= body.turn(event, source).is_ok();
        is_read |= body.candidates(event, source).is_ok();
        is_read |= body.command(event, source).is_ok();
        is_read |= body.transition().is_ok();
        is_read |= body.detail().is_ok();
        is_read |= body.vector().is_ok();
        is_read |= body.receipt(RecallId::from_bytes([3; 16])).is_ok();
    }
    is_read
}

fn check(object: &[u8]) -> bool {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let is_read = read(object);
    let peak = PEAK.load(Ordering::Relaxed) - before;
    let (bytes, allowed) = (object.len(), object.len() + MEMORY_MAX);
    assert!(
        peak <= allowed,
        "{peak} bytes of memory for an object of {bytes}"
    );
    is_read
}

fn golden(record: Record, version: usize) -> Vec<Vec<u8>> {
    let file = format!("golden/{}/v{version}.hex", record.name());
    let text = fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let unhex = |line: &str| {
        let digit = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
        (0..line.len()).step_by(2).map(digit).collect()
    };
    text.lines().map(unhex).collect()
}

/// A small generator with a fixed seed: every run tries the same frames.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Zigzag encodings that claim far more than there is.
const LENGTHS: [&[u8]; 5] = [
    &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0x80, 0x80, 0x80, 0x04],
    &[0xfe, 0xff, 0xff, 0x03],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
];

/// no length that a frame claims makes a decoder reserve more than there is, and nothing panics.
#[test]
fn damaged_truncated_and_mislabelled_frames_are_errors_within_bounded_memory() {
    let objects: Vec<Vec<u8>> = published()
        .flat_map(|schema| golden(schema.record, schema.version))
        .collect();
    let labels: Vec<[u8; 8]> = published()
        .map(|schema| *schema.fingerprint.bytes())
        .collect();
    for object in &objects {
        assert!(check(object));
        for cut in 0..object.len() {
            assert!(!check(&object[..cut]), "an object cut at {cut} was read");
        }
    }

    let mut draw = Draw(0x9e37_79b9_7f4a_7c15);
    let mut refused = 0;
    for round in 0..12_000 {
        let mut object = objects[draw.below(objects.len())].clone();
        match round % 4 {
            // Schema A labelled B.
            0 => object[2..10].copy_from_slice(&labels[draw.below(labels.len())]),
            1 => {
                for _ in 0..=draw.below(4) {
                    let at = draw.below(object.len());
                    object[at] ^= 1 << draw.below(8);
                }
            }
            2 => {
                let at = 10 + draw.below(object.len() - 9);
                let length = LENGTHS[draw.below(LENGTHS.len())];
                object.splice(at..at, length.iter().copied());
            }
            _ => {
                let at = 10 + draw.below(object.len() - 9);
                object.truncate(at);
                object.extend((0..draw.below(64)).map(|_| draw_byte(round)));
            }
        }
        refused += usize::from(!check(&object));
    }
    assert!(
        refused > 6_000,
        "only {refused} of the damaged frames were refused"
    );

    // The worst that a payload of the full size can claim: lists of the smallest values.
    for label in &labels {
        for fill in [0x00, 0x02, 0x80] {
            let mut object = vec![0xC3, 0x01];
            object.extend_from_slice(label);
            for _ in 0..3 {
                object.extend_from_slice(&[0x80, 0x80, 0x80, 0x02]);
            }
            object.resize(4 << 20, fill);
            assert!(!check(&object));
        }
    }
}

fn draw_byte(round: usize) -> u8 {
    (round.wrapping_mul(31) >> 3) as u8
}
