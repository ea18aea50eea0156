//! Annotations that functions leave for each other on a packet, and the names that they may use.

use netbricks_core::buffer::Batch;
use netbricks_core::packet::Link;
use netbricks_core::{Annotation, DetachedContext, Function, Input, Operator, Worker, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::run_with;

use crate::harness::{pool, worker};

fn asking<T: netbricks_core::tables::Encode + 'static>(worker: &Worker, name: &str) -> Result<(), String> {
    let built = compose(worker, |input| {
        let slot = worker.annotation::<T>(name);
        input
            .inspect(move |packet| {
                packet.annotation(slot);
            })
            .done()
    });
    built.map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn a_name_has_one_type_and_all_names_together_56_bytes() {
    let worker = worker(&pool());
    assert_eq!(asking::<u32>(&worker, "class"), Ok(()));
    // Again, by another function: the same slot.
    assert_eq!(asking::<u32>(&worker, "class"), Ok(()));
    let refused = asking::<u64>(&worker, "class").unwrap_err();
    assert!(refused.contains("annotation `class` is a `u64` here, but a `u32`"), "{refused}");
    // Of 8 bytes beside the metadata 5 are taken, and of 48 in a line of their own 43.
    assert_eq!(asking::<[u8; 42]>(&worker, "large"), Ok(()));
    let refused = asking::<u64>(&worker, "one more").unwrap_err();
    assert!(
        refused.contains("takes 9 bytes in one piece, but of 56 bytes only a piece of 5 is left"),
        "{refused}"
    );
    assert_eq!(asking::<[u8; 4]>(&worker, "the last"), Ok(()));
    assert_eq!(asking::<u16>(&worker, "the last near one"), Ok(()));
    assert!(asking::<()>(&worker, "nothing").unwrap_err().contains("only a piece of 0"));
}

/// Checks that each annotation writes only its own bytes.
///
/// Near and far annotations are both filled to the last byte.
#[test]
fn annotations_of_every_size_lie_beside_each_other() {
    #[derive(Clone, Copy)]
    struct All {
        flag: Annotation<()>,
        six: Annotation<[u8; 6]>,
        eight: Annotation<[u8; 8]>,
        most: Annotation<[u8; 38]>,
    }
    fn all(worker: &Worker) -> All {
        All {
            flag: worker.annotation("flag"),
            six: worker.annotation("six"),
            eight: worker.annotation("eight"),
            most: worker.annotation("most"),
        }
    }
    let function = |input: Input, worker: &Worker| {
        let All { flag, six, eight, most } = all(worker);
        input
            .transform(move |packet| {
                packet.annotate(six, [6; 6]);
                packet.annotate(eight, [8; 8]);
                assert_eq!((packet.annotation(flag), packet.annotation(most)), (None, None));
                packet.annotate(most, [42; 38]);
                packet.annotate(flag, ());
                assert_eq!((packet.annotation(flag), packet.annotation(six)), (Some(()), Some([6; 6])));
                assert_eq!(
                    (packet.annotation(eight), packet.annotation(most)),
                    (Some([8; 8]), Some([42; 38]))
                );
                packet.take_annotation(six);
                assert_eq!((packet.annotation(flag), packet.annotation(six)), (Some(()), None));
            })
            .done()
    };
    let pool = pool();
    let worker = worker(&pool);
    let mut node = compose(&worker, |input| function(input, &worker)).unwrap();
    let mut batch = Batch::new();
    batch.push(pool.packet(&[0; 60]).unwrap()).unwrap();
    let mut cx = DetachedContext::new(pool.clone());
    node.process(0, &mut batch, &mut cx);
    let (packet, All { flag, six, eight, most }) = (batch.get(0).unwrap(), all(&worker));
    assert_eq!((flag.of(packet), six.of(packet)), (Some(()), None));
    assert_eq!((eight.of(packet), most.of(packet)), (Some([8; 8]), Some([42; 38])));
    assert!(asking::<()>(&worker, "one more").unwrap_err().contains("only a piece of 0"));
}

#[test]
fn annotations_are_read_where_they_were_written_and_can_be_taken_off() {
    fn write(input: Input, worker: &Worker) -> impl Function {
        let (first, second) = (worker.annotation::<u16>("first"), worker.annotation::<u64>("second"));
        input
            .transform(move |packet| {
                assert_eq!((packet.annotation(first), packet.annotation(second)), (None, None));
                packet.annotate(first, 7);
                packet.annotate(second, u64::MAX);
                packet.take_annotation(first);
                packet.take_annotation(first);
                assert_eq!((packet.annotation(first), packet.annotation(second)), (None, Some(u64::MAX)));
                packet.annotate(first, 9);
            })
            .done()
    }
    fn read(input: Input, worker: &Worker) -> impl Function {
        let (first, second) = (worker.annotation::<u16>("first"), worker.annotation::<u64>("second"));
        input
            .parse::<Link>()
            .transform(move |packet| {
                let found = (packet.annotation(first), packet.annotation(second));
                packet.payload_mut()[0] = u8::from(found == (Some(9), Some(u64::MAX)));
            })
            .done()
    }
    let frames: Vec<_> = (0..40u16)
        .map(|port| ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(port, 2).build().unwrap())
        .collect();
    let report = run_with(|input, worker| write(input, worker).then(|input| read(input, worker)), frames);
    assert_eq!((report.out.len(), report.panics.len()), (40, 0));
    assert!(report.out.iter().all(|frame| frame[14] == 1));
}
