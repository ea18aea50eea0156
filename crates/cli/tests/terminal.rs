//! A run on a terminal, which script(1) of util-linux provides.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Takes the cursor back to the line's start and clears the line.
const CLEAR: &str = "\r\u{1b}[K";
/// The end of the live line.
const HINT: &str = "Ctrl-C drains and reports\u{1b}[K";

/// The output of a run that gets Ctrl-C at its first live line, and whether there was one.
fn watched(directory: &Path) -> Option<(String, bool)> {
    let child = Command::new("script")
        .args(["-qefc", "exec \"$NETBRICKS\" run f.toml --color never --duration 300s", "/dev/null"])
        .env("NETBRICKS", env!("CARGO_BIN_EXE_netbricks"))
        .env("SHELL", "/bin/sh")
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: the live line on a terminal: script, which is not installed, gives a run one");
        return None;
    };
    let (mut keyboard, mut screen) = child.stdin.take().zip(child.stdout.take()).expect("both are piped");
    let (mut shown, mut typed, mut buffer) = (Vec::new(), false, [0; 4096]);
    while let Ok(length @ 1..) = screen.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..length]);
        if !typed && String::from_utf8_lossy(&shown).contains(HINT) {
            keyboard.write_all(b"\x03").expect("the terminal is there while the run is");
            typed = true;
        }
    }
    let status = child.wait().expect("it ends");
    // The terminal may echo the typed characters, at any place of the cursor.
    let shown = String::from_utf8_lossy(&shown).replace("^C", "");
    assert!(status.success(), "{status}: {shown}");
    Some((shown, typed))
}

#[test]
fn a_live_line_is_drawn_over_itself_and_taken_away() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("live-line");
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    // It goes on until it is stopped. If no line is drawn, its duration ends it, so that the test does not
    // hang.
    std::fs::write(
        directory.join("f.toml"),
        "[port.lan]\ndriver = \"generator\"\nrate = \"1 kpps\"\nclock = \"real\"\n[port.wan]\ndriver = \"null\"\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [\"ttl\"]\nto = \"wan\"\n[runtime]\nidle = \"quiet\"\n",
    )
    .expect("the directory can be written");
    let Some((shown, typed)) = watched(&directory) else { return };
    assert!(typed, "{shown:?}");
    let mut lines = shown.split(HINT);

    // It begins with the elapsed time, at the start of its line.
    let (before, first) = lines.next().and_then(|first| first.rsplit_once("\r ")).expect("it was drawn");
    assert!(before.contains("f.toml  2 ports · 1 chain · 1 function"), "{shown:?}");
    let (elapsed, rates) = first.split_once("  received ").unwrap_or_else(|| panic!("{first:?}"));
    let (minutes, seconds) = elapsed.split_once(':').unwrap_or_else(|| panic!("{elapsed:?}"));
    assert!(minutes.parse::<u8>().is_ok() && seconds.parse::<u8>().is_ok(), "{elapsed:?}");
    assert!(
        rates.contains("pps") && rates.contains(" · sent ") && rates.contains(" · dropped "),
        "{rates:?}"
    );
    assert!(!first.contains('\n'), "{first:?}");

    // The next text is written over the line, or replaces it.
    let next: Vec<&str> = lines.collect();
    assert!(next.iter().all(|next| next.starts_with("\r ") || next.starts_with(CLEAR)), "{shown:?}");
    let last = next.last().and_then(|last| last.strip_prefix(CLEAR)).unwrap_or_else(|| panic!("{shown:?}"));
    let said = format!("{CLEAR}SIGINT: draining and stopping");
    assert!(shown.contains(&said), "{shown:?}");
    let law = last.trim_end().lines().last().unwrap_or_default();
    assert!(law.contains(" received + 0 created = "), "{shown:?}");
    assert!(law.ends_with("   every packet accounted for"), "{shown:?}");
}
