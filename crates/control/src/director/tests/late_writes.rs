//! Writes of handlers whose answers come while a change is made.

use super::rollbacks::unconfirmed;
use super::*;

#[test]
fn a_change_waits_for_writes_under_way_and_makes_them_again_where_it_must() {
    for tenant in [None, Some("acme")] {
        let mut run = Run::new();
        run.plane.holds = true;
        let changed = run.change("two", None);
        let early = run.write_as(tenant, "replaced", "later", "early", None);
        run.plane.prepare_held();
        run.work();
        assert_eq!((run.plane.source.text.as_str(), changed.try_recv().is_err()), ("one", true));
        // One that comes now waits for the change, whoever makes it.
        let late = run.write("replaced", "later", "late", None);
        run.patience = Duration::ZERO;
        let over = run.write("replaced", "later", "too late", None);
        assert_eq!(run.plane.called, ["replaced early"]);
        run.plane.called.clear();
        run.plane.answer();
        run.work();
        run.tick(0);
        assert_eq!(run.plane.source.text, "two");
        assert!(changed.try_recv().unwrap().1.is_ok());
        assert_eq!((code(&early), code(&over)), (None, Some(Code::Timeout)));
        assert_eq!(run.plane.called, ["replaced early", "replaced late"]);
        assert_eq!(run.journal(), ["replaced early"]);
        run.plane.answer();
        run.work();
        assert_eq!(code(&late), None);
        assert_eq!(run.journal(), ["replaced early", "replaced late"]);
    }
}

#[test]
fn a_change_is_refused_where_a_write_is_not_answered_in_time_and_held_writes_go_on() {
    let mut run = Run::new();
    run.plane.holds = true;
    let (changed, next) = (run.change("two", None), run.change("three", None));
    let stuck = run.write("replaced", "later", "stuck", None);
    run.plane.prepare_held();
    run.work();
    let held: Vec<Answered> =
        (0..WAITING + 1).map(|number| run.write("f", "now", &number.to_string(), None)).collect();
    assert_eq!(code(held.last().unwrap()), Some(Code::Busy), "their number is bounded");
    assert_eq!(run.plane.called, ["replaced stuck"]);
    run.tick(60);
    run.work();
    assert_eq!(changed.try_recv().unwrap().1.unwrap_err().code, Code::Timeout);
    assert_eq!(run.plane.source.text, "one");
    assert!(held[..WAITING].iter().all(|answered| code(answered).is_none()));
    run.plane.answer();
    run.work();
    assert_eq!(code(&stuck), None);
    assert_eq!(run.journal().len(), WAITING + 1);
    run.plane.prepare_held();
    run.work();
    assert!(next.try_recv().unwrap().1.is_ok());
}

#[test]
fn a_rollback_beside_a_change_that_is_being_prepared_waits_for_writes_under_way() {
    let mut run = Run::new();
    run.apply("two", unconfirmed());
    run.plane.holds = true;
    let _stuck = run.change("three", None);
    let late = run.write("replaced", "later", "late", None);
    run.tick(2);
    assert_eq!(run.plane.source.text, "two");
    run.plane.answer();
    run.work();
    run.tick(2);
    assert_eq!((run.plane.source.text.as_str(), code(&late)), ("one", None));
    // What was written since is undone, and stays with the configuration that it changed.
    assert!(run.journal().is_empty());
    assert_eq!(run.records.configuration(2).unwrap().1.len(), 1);
}

#[test]
fn a_replay_ends_when_all_workers_have_answered() {
    let mut run = Run::new();
    run.write("f", "now", "one", None);
    run.records.written[0].handler = "elsewhere".into();
    run.plane.called.clear();
    run.director().replay();
    assert_eq!(run.plane.answered.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[test]
fn a_note_that_no_new_configuration_has_is_told() {
    let mut run = Run::new();
    run.plane.unchanged = true;
    let options = ApplyOptions { note: Some("why".into()), ..ApplyOptions::default() };
    let applied = run.apply("one", options);
    assert_eq!(applied.configuration, 1);
    assert_eq!(applied.plan.warnings, ["nothing changes, so that no new configuration has the note"]);
    assert!(run.apply("one", ApplyOptions::default()).plan.warnings.is_empty());
}
