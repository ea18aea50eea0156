//! No text makes the compiler panic or grow, and no frame makes a program panic or allocate.

use netbricks_core::filter::Filter;
use proptest::prelude::*;

use crate::exercise::filter;
use crate::expressions;

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

/// Frames that start as IP, where programs look further.
fn likely_frame() -> impl Strategy<Value = Vec<u8>> {
    let kinds = vec![0x0800_u16, 0x86dd, 0x8100, 0x8847, 0x8864, 0x0806, 0x0040];
    (any_frame(), prop::sample::select(kinds), any::<bool>()).prop_map(|(mut frame, kind, udp)| {
        if let Some(place) = frame.get_mut(12..14) {
            place.copy_from_slice(&kind.to_be_bytes());
        }
        if udp && frame.len() > 38 {
            frame[14] = 0x45;
            frame[20..22].fill(0);
            frame[23] = 17;
            frame[36..38].copy_from_slice(&6081_u16.to_be_bytes());
        }
        frame
    })
}

fn pieces_joined() -> impl Strategy<Value = String> {
    let pieces = expressions::pieces();
    prop::collection::vec(prop::sample::select(pieces), 0..40).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn any_text_is_a_filter_or_an_error_with_a_place(text in ".{0,200}", frame in any_frame()) {
        filter(&text, &frame);
    }

    #[test]
    fn any_sequence_of_words_is_a_filter_or_an_error_with_a_place(text in pieces_joined(), frame in likely_frame()) {
        filter(&text, &frame);
    }

    #[test]
    fn no_frame_makes_a_program_panic(
        text in prop::sample::select(expressions::good()),
        frame in likely_frame(),
        wire_len in any::<usize>(),
    ) {
        let filter = Filter::parse(text).unwrap();
        filter.matches(&frame, wire_len);
    }
}

#[test]
fn a_program_allocates_nothing() {
    let frames = [vec![], vec![0; 14], vec![0x45; 200]];
    for text in expressions::good() {
        let filter = Filter::parse(text).unwrap();
        let allocations = allocation_counter::measure(|| {
            for frame in &frames {
                std::hint::black_box(filter.matches(frame, frame.len()));
            }
        });
        assert_eq!(allocations.count_total, 0, "{text}");
    }
}

#[test]
fn a_filter_can_be_shared_and_cloned() {
    fn shared<T: Clone + Send + Sync + std::fmt::Debug + 'static>() {}
    shared::<Filter>();
}
