//! Configurations that are not confirmed in time.

use super::*;

/// Options of a file that waits a second to be confirmed.
pub(super) fn unconfirmed() -> ApplyOptions {
    ApplyOptions { confirm: Some(1.0), ..ApplyOptions::default() }
}

#[test]
fn a_rollback_that_is_due_is_prepared_beside_the_director_and_comes_before_changes_that_wait() {
    let mut run = Run::new();
    run.apply("two", unconfirmed());
    run.plane.holds = true;
    run.tick(2);
    // The time is over once, however long it takes.
    run.tick(2);
    let waits = run.change("four", None);
    run.work();
    assert_eq!((run.plane.held_changes.len(), run.plane.source.text.as_str()), (1, "two"));
    assert_eq!(run.plane.held_changes[0].0.source.text, "one");
    assert_eq!(run.records.deadline(), None);
    // Others are answered meanwhile.
    assert!(!run.director().status().confirmed);
    let problem = run.director().confirm().unwrap_err();
    assert_eq!(problem.detail, "configuration 2 was not confirmed in time, and is being rolled back");
    run.plane.prepare_held();
    run.work();
    assert_eq!(run.plane.source.text, "one");
    assert!(run.director().status().confirmed);
    run.plane.prepare_held();
    run.work();
    assert_eq!(waits.try_recv().unwrap().1.unwrap().configuration, 4);
    let kinds: Vec<String> = run.director().events().since(0).into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["applied", "not-confirmed", "rolled-back", "applied"]);
}

#[test]
fn a_rollback_that_is_due_does_not_wait_for_a_change_that_is_being_prepared() {
    let mut run = Run::new();
    run.apply("two", unconfirmed());
    run.plane.holds = true;
    // It may never end, such as one that reads from a device that does not answer.
    let (stuck, waits) = (run.change("three", None), run.change("four", None));
    run.tick(2);
    assert_eq!((run.plane.source.text.as_str(), run.plane.held_changes.len()), ("one", 1));
    assert!(run.director().status().confirmed);
    assert!(stuck.try_recv().is_err());
    // What was prepared for another configuration does not run.
    run.plane.prepare_held();
    run.work();
    assert_eq!(stuck.try_recv().unwrap().1.unwrap_err().code, Code::Stale);
    run.plane.prepare_held();
    run.work();
    assert_eq!(waits.try_recv().unwrap().1.unwrap().configuration, 4);
    let kinds: Vec<String> = run.director().events().since(0).into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["applied", "not-confirmed", "rolled-back", "applied"]);
}

#[test]
fn a_rollback_that_is_due_comes_also_where_handlers_are_written_all_the_time() {
    let mut run = Run::new();
    run.apply("two", unconfirmed());
    run.plane.holds = true;
    run.tick(2);
    assert!(code(&run.write("kept", "now", "meanwhile", None)).is_none());
    run.plane.prepare_held();
    run.work();
    assert_eq!((run.plane.source.text.as_str(), run.plane.held_changes.len()), ("one", 0));
    assert!(run.journal().is_empty());
}

#[test]
fn a_rollback_that_is_due_and_fails_is_tried_again_and_does_not_wait_for_a_clients_own() {
    let mut run = Run::new();
    run.apply("two", unconfirmed());
    run.plane.holds = true;
    run.tick(2);
    for (_, done) in std::mem::take(&mut run.plane.held_changes) {
        done(Err(Problem::new(Code::Machine, "no device")));
    }
    run.work();
    let failed = run.director().events().since(0).pop().unwrap();
    assert_eq!((failed.kind.as_str(), failed.message.as_str()), ("rollback-failed", "no device"));
    assert!(run.records.deadline().is_some_and(|until| until > Instant::now() + AGAIN / 2));
    // A client's own rollback is being prepared when the time is over again.
    let (sender, answered) = std::sync::mpsc::channel();
    let answer = move |_, applied: Result<Applied, Problem>| drop(sender.send(applied.map(drop)));
    let (back, tasks) = (Change::Rollback { to: None, dry_run: false, expected: None }, run.tasks.clone());
    run.director().change(back, &tasks, Box::new(answer));
    run.tick(2 * AGAIN.as_secs());
    run.plane.prepare_held();
    run.work();
    assert_eq!(answered.try_recv().unwrap().unwrap_err().code, Code::Stale);
    let history = run.director().history();
    assert_eq!((run.plane.source.text.as_str(), run.plane.held_changes.len()), ("one", 0));
    assert_eq!(history.len(), 3, "{history:?}");
}
