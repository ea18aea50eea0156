//! The commands `click`, `click-flatten` and `click-buildtool`, with the options of Click's own.

use std::cell::RefCell;
use std::ffi::OsString;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::rc::Rc;

use clap::{CommandFactory, FromArgMatches, Parser};
use netbricks_core::Random;
use netbricks_core::buffer::Pool;

use crate::classes::Known;
use crate::clock::Clock;
use crate::handler_call::ROOT;
use crate::language::config::{self, Classes, Configuration, Declaration, Source};
use crate::language::errors::Errors;
use crate::language::text;
use crate::node::Devices;
use crate::router::{Capabilities, Router, Surroundings};
use crate::{build, drive};

/// Exit code of a command that did what it was to do, and of one that did not.
const SUCCESS: u8 = 0;
const FAILURE: u8 = 1;

/// Frames of the pool that a configuration's packets come from, and their size (bytes).
const FRAMES: usize = 64 * 1024;
const FRAME_SIZE: usize = 2048;
/// Frames for packets of up to 64 KiB, and their size (bytes).
const LARGE_FRAMES: usize = 1024;
const LARGE_FRAME_SIZE: usize = 68 * 1024;

/// Runs a Click configuration.
#[derive(Debug, Parser)]
#[command(
    disable_help_flag = true,
    disable_version_flag = true,
    after_help = "Examples:\n  netbricks click router.click\n  \
                  netbricks click -e 'InfiniteSource(LIMIT 5, STOP true) -> c :: Counter -> Discard' -h c.count\n  \
                  netbricks click --simtime shaper.click RATE=1000"
)]
pub struct RunOptions {
    /// Read the configuration from FILE (`-`: standard input).
    #[arg(short, long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Use EXPR as configuration.
    #[arg(short, long = "expression", value_name = "EXPR", allow_hyphen_values = true)]
    expression: Option<String>,
    /// Run on N threads.
    #[arg(short = 'j', long = "threads", value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Listen for control connections on a TCP port; `PORT+` tries the next ones too.
    #[arg(short, long = "port", value_name = "PORT")]
    port: Vec<String>,
    /// Listen for control connections on a Unix socket.
    #[arg(short, long = "unix-socket", value_name = "FILE")]
    unix_socket: Vec<String>,
    /// Let the `hotconfig` handler replace the configuration.
    #[arg(short = 'R', long = "allow-reconfigure")]
    allow_reconfigure: bool,
    /// Read handler ELEMENT.H when the configuration has stopped, and print what it says.
    #[arg(short = 'h', long = "handler", value_name = "ELEMENT.H")]
    handler: Vec<String>,
    /// Use the value of handler ELEMENT.H as exit status.
    #[arg(short = 'x', long = "exit-handler", value_name = "ELEMENT.H")]
    exit_handler: Option<String>,
    /// Write the flat configuration to FILE (`-`: standard output).
    #[arg(short, long = "output", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Do not run the configuration.
    #[arg(short, long = "quit")]
    quit: bool,
    /// Print how long the configuration ran.
    #[arg(short, long = "time")]
    time: bool,
    /// Print no warnings.
    #[arg(short = 'w', long = "no-warnings")]
    no_warnings: bool,
    /// Run in simulated time, from SECONDS since 1970 on.
    #[arg(long = "simtime", value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1000000000")]
    simtime: Option<f64>,
    /// Look for libraries of `require(library F)` in these folders.
    #[arg(short = 'C', long = "clickpath", value_name = "PATH")]
    clickpath: Option<String>,
    /// Begin the sequence of random numbers that belongs to SEED.
    #[arg(long = "seed", value_name = "SEED")]
    seed: Option<u64>,
    /// Print this message and exit.
    #[arg(long = "help", action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Print the version and exit.
    #[arg(short, long = "version")]
    version: bool,
    /// The configuration's file, and values of its parameters.
    #[arg(value_name = "FILE | NAME=VALUE")]
    words: Vec<String>,
}

/// Flattens a Click configuration: compound elements are replaced by what they are made of.
#[derive(Debug, Parser)]
#[command(
    disable_help_flag = true,
    disable_version_flag = true,
    after_help = "Examples:\n  netbricks click-flatten router.click\n  netbricks click-flatten --classes router.click"
)]
struct FlattenOptions {
    /// Print the classes that the configuration uses.
    #[arg(short, long = "classes")]
    classes: bool,
    /// Print the names of the flat configuration's elements.
    #[arg(short, long = "names")]
    names: bool,
    /// Print the declarations of the flat configuration.
    #[arg(short, long = "declarations")]
    declarations: bool,
    /// Read the configuration from FILE (`-`: standard input).
    #[arg(short, long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Use EXPR as configuration.
    #[arg(short, long = "expression", value_name = "EXPR", allow_hyphen_values = true)]
    expression: Option<String>,
    /// Accepted for Click's sake: there are no archives here.
    #[arg(long = "config")]
    config: bool,
    /// Replace the variables of the file by their values.
    #[arg(long = "expand-vars")]
    expand_vars: bool,
    /// Write to FILE.
    #[arg(short, long = "output", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Look for libraries of `require(library F)` in these folders.
    #[arg(short = 'C', long = "clickpath", value_name = "PATH")]
    clickpath: Option<String>,
    /// Print this message and exit.
    #[arg(long = "help", action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Print the version and exit.
    #[arg(short, long = "version")]
    version: bool,
    /// The configuration's file, and values of its parameters.
    #[arg(value_name = "FILE | NAME=VALUE")]
    words: Vec<String>,
}

/// Runs the command of a name: `click`, `click-flatten` or `click-buildtool`. Returns its exit code.
///
/// `None` for any other name.
pub fn run(program: &str, arguments: impl IntoIterator<Item = OsString>) -> Option<u8> {
    let arguments: Vec<OsString> = std::iter::once(program.into()).chain(arguments).collect();
    Some(match program.rsplit([' ', '/']).next()? {
        "click" => parsed::<RunOptions>(program, arguments).map_or_else(|code| code, run_click),
        "click-flatten" => parsed::<FlattenOptions>(program, arguments).map_or_else(|code| code, flatten),
        "click-buildtool" => buildtool(&arguments[1..]),
        _ => return None,
    })
}

fn parsed<T: CommandFactory + FromArgMatches>(program: &str, arguments: Vec<OsString>) -> Result<T, u8> {
    let command = T::command().bin_name(program.to_owned());
    match command.try_get_matches_from(arguments).and_then(|matches| T::from_arg_matches(&matches)) {
        Ok(options) => Ok(options),
        Err(error) => {
            let _ = error.print();
            Err(if error.use_stderr() { FAILURE } else { SUCCESS })
        }
    }
}

/// A configuration's text, the name of its place in messages, and parameters.
struct Input {
    text: String,
    file: String,
    is_expression: bool,
    parameters: Vec<(String, String)>,
}

fn is_parameter(word: &str) -> Option<(String, String)> {
    let (name, value) = word.split_once('=')?;
    let fits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    fits.then(|| (name.to_owned(), value.to_owned()))
}

/// Reads the configuration that the options name. `None` after an error was told.
fn read_input(file: Option<PathBuf>, expression: Option<String>, words: Vec<String>) -> Option<Input> {
    let mut parameters: Vec<(String, String)> = Vec::new();
    let mut files: Vec<PathBuf> = file.into_iter().collect();
    for word in words {
        match is_parameter(&word) {
            Some((name, _)) if parameters.iter().any(|(known, _)| *known == name) => {
                eprintln!("parameter '{name}' multiply defined");
                return None;
            }
            Some(parameter) => parameters.push(parameter),
            None => files.push(word.into()),
        }
    }
    if files.len() + usize::from(expression.is_some()) > 1 {
        eprintln!("router configuration specified twice");
        return None;
    }
    if let Some(text) = expression {
        return Some(Input { text, file: "config".into(), is_expression: true, parameters });
    }
    let file = files.pop().filter(|file| file.as_os_str() != "-");
    let (name, bytes) = match &file {
        None => {
            let mut bytes = Vec::new();
            ("<stdin>".to_owned(), std::io::stdin().read_to_end(&mut bytes).map(|_| bytes))
        }
        Some(file) => (file.display().to_string(), std::fs::read(file)),
    };
    match bytes {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Some(Input { text, file: name, is_expression: false, parameters })
        }
        Err(error) => {
            eprintln!("{name}: {}", system_message(&error));
            None
        }
    }
}

/// The system's text of an error, without Rust's addition of its number.
pub(crate) fn system_message(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.find(" (os error").map_or(text.clone(), |place| text[..place].to_owned())
}

/// Says a line on the standard error output, in one piece: other programs may write there too.
fn say(line: &str) {
    // Without such an output nothing can be told.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

fn to_standard_error() -> Errors {
    Errors::to(Box::new(say))
}

/// Signals of the process, collected by the `signal-hook` library.
struct Collected(Option<signal_hook::iterator::Signals>);

impl Collected {
    /// Collects the signals that end a configuration.
    fn new() -> Self {
        let ends = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
        Self(signal_hook::iterator::Signals::new(ends).ok())
    }
}

impl drive::Signals for Collected {
    fn collect(&mut self, signal: i32) {
        if let Some(signals) = &self.0 {
            // To add a signal again has no effect.
            let _ = signals.add_signal(signal);
        }
    }
    fn take(&mut self) -> Option<i32> {
        self.0.as_mut()?.pending().next()
    }
    fn act(&mut self, signal: i32) -> bool {
        if matches!(signal, signal_hook::consts::SIGINT | signal_hook::consts::SIGTERM) {
            return false;
        }
        // No script waits for it any more: it ends the process, or does nothing, as it would without one.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        true
    }
}

fn surroundings(options: &RunOptions) -> Option<Surroundings> {
    let pool = Pool::builder()
        .frames(FRAMES)
        .frame_size(FRAME_SIZE)
        .large(LARGE_FRAMES, LARGE_FRAME_SIZE)
        .in_advance(false)
        .build();
    let pool = match pool {
        Ok(pool) => pool,
        Err(error) => {
            eprintln!("no memory for packets: {error}");
            return None;
        }
    };
    let clock = match options.simtime {
        Some(begin) if (0.0..1.8e10).contains(&begin) => Clock::simulated((begin * 1e9).round() as u64),
        Some(begin) => {
            eprintln!("--simtime: {begin} s is out of range");
            return None;
        }
        None => Clock::machine(),
    };
    let key = options.seed.unwrap_or_else(|| RandomState::new().hash_one(0));
    let seed = options.seed.unwrap_or_else(|| clock.now() ^ u64::from(std::process::id()) << 32);
    Some(Surroundings {
        pool,
        clock: Rc::new(clock),
        capabilities: Capabilities::ALL,
        chatter: Rc::new(say),
        seed,
        secrets: Rc::new(RefCell::new(Random::of(&[b"click secrets", &key.to_le_bytes()]))),
        reconfigures: options.allow_reconfigure,
        exact: None,
        most_elements: usize::MAX,
        most_memory: usize::MAX,
        most_text: 1 << 26,
        most_automata: usize::MAX,
        most_work: u64::MAX,
        keeps_dropped: false,
    })
}

/// The text of a library that a configuration requires, from the folders of the path.
fn library(path: Option<&str>, name: &str) -> Option<String> {
    let mut folders: Vec<PathBuf> = vec![PathBuf::from(".")];
    let from_environment = std::env::var("CLICKPATH").unwrap_or_default();
    folders.extend(
        path.unwrap_or(&from_environment).split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from),
    );
    folders.iter().find_map(|folder| std::fs::read_to_string(folder.join(name)).ok())
}

/// Adds the control sockets that the options ask for.
fn add_control_sockets(configuration: &mut Configuration, options: &RunOptions) {
    let tcp = options.port.iter().map(|port| format!("TCP, {port}"));
    let unix =
        options.unix_socket.iter().map(|file| format!("UNIX, {}", text::quote(file.as_bytes(), false)));
    for (number, config) in tcp.chain(unix).enumerate() {
        let name = match number {
            0 => format!("{}ControlSocket", build::PROGRAM),
            _ => format!("{}ControlSocket@{number}", build::PROGRAM),
        };
        let landmark = Rc::from("click");
        configuration.elements.push(Declaration { name, class: "ControlSocket".into(), config, landmark });
    }
}

fn run_click(options: RunOptions) -> u8 {
    if options.version {
        println!("click (NetBricks) {}", env!("CARGO_PKG_VERSION"));
        return SUCCESS;
    }
    let Some(input) = read_input(options.file.clone(), options.expression.clone(), options.words.clone())
    else {
        return FAILURE;
    };
    let Some(surroundings) = surroundings(&options) else { return FAILURE };
    let errors = to_standard_error();
    let source = Source { text: &input.text, file: &input.file, is_expression: input.is_expression };
    let find = |name: &str| library(options.clickpath.as_deref(), name);
    let mut configuration = config::parse(&source, &input.parameters, &Known, &find, &errors);
    if errors.count() > 0 {
        return FAILURE;
    }
    let is_empty = configuration.elements.is_empty();
    let flat = options.output.is_some().then(|| configuration.to_click());
    add_control_sockets(&mut configuration, &options);
    if options.threads > 1 {
        errors.warning("a configuration runs on one thread here: -j is of no effect");
    }
    let Some(router) = build::configured(configuration, surroundings, &errors) else {
        return FAILURE;
    };
    if !options.quit && tells_devices(&router, &options, &input.file) || !router.initialize(&errors) {
        return FAILURE;
    }
    let mut code = 0;
    if let (Some(output), Some(flat)) = (&options.output, flat)
        && let Err(error) = write_output(output, &flat)
    {
        eprintln!("{}: {}", output.display(), system_message(&error));
        code = 1;
    }
    let begin = std::time::Instant::now();
    let router = if options.quit {
        router
    } else if is_empty && options.port.is_empty() && options.unix_socket.is_empty() {
        if !options.no_warnings {
            eprintln!("{}: configuration has no elements, exiting", input.file);
        }
        router
    } else {
        drive::run(router, &mut Collected::new())
    };
    if options.time {
        println!("{:.3}", begin.elapsed().as_secs_f64());
    }
    if !read_handlers(&router, &options.handler) {
        code = 1;
    }
    if let Some(handler) = &options.exit_handler {
        code = exit_value(&router, handler).unwrap_or(255);
    }
    router.cleanup();
    let _ = std::io::stdout().flush();
    code
}

/// Whether a configuration names devices: this command has no ports behind them. Says how to run it then.
fn tells_devices(router: &Router, options: &RunOptions, file: &str) -> bool {
    let devices = match Devices::of(router) {
        Ok(devices) => devices,
        Err(error) => {
            say(&format!("{file}: {}", error.problem));
            return true;
        }
    };
    let Some(device) = devices.inputs.first().or(devices.outputs.first()) else { return false };
    let file = match &options.file {
        Some(path) => path.display().to_string(),
        None => "FILE.click".into(),
    };
    say(&format!(
        "the configuration names the device `{device}`, and this command opens none: use `netbricks run {file}`, which \
         makes a port of each device"
    ));
    true
}

fn write_output(to: &std::path::Path, text: &str) -> std::io::Result<()> {
    if to.as_os_str() == "-" {
        std::io::stdout().write_all(text.as_bytes())
    } else {
        std::fs::write(to, text)
    }
}

fn exit_value(router: &Router, handler: &str) -> Option<u8> {
    let called =
        crate::handler_call::HandlerCall::parse(handler, router.at(ROOT)).and_then(|call| call.read(router));
    match called {
        Ok(value) => {
            let value = value.trim();
            match value.parse::<i64>() {
                Ok(number) => Some(number as u8),
                Err(_) => match crate::value::boolean(value) {
                    Some(good) => Some(u8::from(!good)),
                    None => {
                        eprintln!("exit handler value should be integer");
                        None
                    }
                },
            }
        }
        Err(message) => {
            eprintln!("{message}");
            None
        }
    }
}

/// Reads handlers and prints what they say. `false` after an error was told.
fn read_handlers(router: &Router, wanted: &[String]) -> bool {
    let mut good = true;
    let names = wanted.len() > 1;
    for one in wanted {
        let Some((element, handler)) = one.split_once('.').filter(|(element, _)| !element.is_empty()) else {
            good &= read_handler(router, ROOT, one.trim_start_matches('.'), names);
            continue;
        };
        if element.contains(['*', '?', '[']) {
            let matching: Vec<usize> = (0..router.len())
                .filter(|id| matches(element, router.name(*id)))
                .filter(|id| {
                    router.handler(*id, handler).is_some_and(|handler| handler.is_visibly_readable())
                })
                .collect();
            if matching.is_empty() {
                eprintln!("no element matching '{element}'");
                good = false;
            }
            for id in &matching {
                good &= read_handler(router, *id, handler, names || matching.len() > 1);
            }
        } else if let Some(id) = router.exactly(element) {
            good &= read_handler(router, id, handler, names);
        } else {
            eprintln!("no element '{element}'");
            good = false;
        }
    }
    good
}

fn read_handler(router: &Router, element: usize, name: &str, with_name: bool) -> bool {
    let full = if element == ROOT { name.to_owned() } else { format!("{}.{name}", router.name(element)) };
    let handler = router
        .handler(element, name)
        .filter(|handler| handler.is_visibly_readable() || handler.is_visibly_writable());
    let Some(handler) = handler else {
        eprintln!("no '{full}' handler");
        return false;
    };
    if !handler.is_visibly_readable() {
        eprintln!("'{full}' is a write handler");
        return false;
    }
    match router.read_handler(element, name, "") {
        Ok(mut value) => {
            if !handler.raw && !value.is_empty() && !value.ends_with('\n') {
                value.push('\n');
            }
            let head = if with_name { format!("{full}:\n") } else { String::new() };
            let _ = write!(std::io::stdout(), "{head}{value}{}", if with_name { "\n" } else { "" });
            true
        }
        Err(message) => {
            eprintln!("{message}");
            false
        }
    }
}

/// Whether a name fits a pattern of `*`, `?` and `[...]`.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // Where the last `*` was, and how much of the name it takes: on a mismatch it takes one more.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
                continue;
            }
            Some('[') => {
                if let Some((fits, next)) = in_set(&pattern, p, name[n])
                    && fits
                {
                    p = next;
                    n += 1;
                    continue;
                }
            }
            Some('?') => {
                p += 1;
                n += 1;
                continue;
            }
            Some(letter) if *letter == name[n] => {
                p += 1;
                n += 1;
                continue;
            }
            _ => (),
        }
        match star {
            Some((place, taken)) => {
                star = Some((place, taken + 1));
                p = place + 1;
                n = taken + 1;
            }
            None => return false,
        }
    }
    pattern[p..].iter().all(|letter| *letter == '*')
}

/// Whether a letter is in the set that begins at a place, and the place behind it.
fn in_set(pattern: &[char], begin: usize, letter: char) -> Option<(bool, usize)> {
    let mut place = begin + 1;
    let negated = matches!(pattern.get(place), Some('^' | '!'));
    place += usize::from(negated);
    let first = place;
    let mut found = false;
    while let Some(low) = pattern.get(place) {
        if *low == ']' && place > first {
            return Some((found != negated, place + 1));
        }
        match (pattern.get(place + 1), pattern.get(place + 2)) {
            (Some('-'), Some(high)) if *high != ']' => {
                found |= (*low..=*high).contains(&letter);
                place += 3;
            }
            _ => {
                found |= *low == letter;
                place += 1;
            }
        }
    }
    None
}

/// For `click-flatten`: any class may be used.
struct Any;
impl Classes for Any {
    fn known(&self, class: &str) -> bool {
        crate::classes::find(class).is_some()
    }
    fn open(&self) -> bool {
        true
    }
}

fn flatten(options: FlattenOptions) -> u8 {
    if options.version {
        println!("click-flatten (NetBricks) {}", env!("CARGO_PKG_VERSION"));
        return SUCCESS;
    }
    let Some(input) = read_input(options.file, options.expression, options.words) else {
        return FAILURE;
    };
    let errors = to_standard_error();
    let source = Source { text: &input.text, file: &input.file, is_expression: input.is_expression };
    let find = |name: &str| library(options.clickpath.as_deref(), name);
    let configuration =
        config::parse_for_text(&source, &input.parameters, &Any, &find, options.expand_vars, &errors);
    let lines = |mut values: Vec<String>| {
        values.sort_unstable();
        values.dedup();
        values.iter().map(|value| format!("{value}\n")).collect::<String>()
    };
    let shown = if options.classes {
        lines(configuration.elements.iter().map(|one| one.class.clone()).collect())
    } else if options.names {
        lines(configuration.elements.iter().map(|one| one.name.clone()).collect())
    } else if options.declarations {
        lines(configuration.elements.iter().map(|one| format!("{} :: {}", one.name, one.class)).collect())
    } else if errors.count() > 0 {
        return FAILURE;
    } else {
        configuration.to_flat_text()
    };
    let output = options.output.unwrap_or_else(|| "-".into());
    if let Err(error) = write_output(&output, &shown) {
        eprintln!("{}: {}", output.display(), system_message(&error));
        return FAILURE;
    }
    if errors.count() > 0 { FAILURE } else { SUCCESS }
}

/// `click-buildtool provides NAME...`: whether all are there.
fn buildtool(arguments: &[OsString]) -> u8 {
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    match words.split_first() {
        Some((&"provides", names)) => {
            let all = names.iter().filter(|name| !name.starts_with('-')).all(|name| build::provides(name));
            if all { SUCCESS } else { FAILURE }
        }
        _ => {
            eprintln!("click-buildtool: only `provides NAME...` is known: nothing is built here");
            FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_names() {
        for (pattern, name, fits) in [
            ("*", "a", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("*/q[12]", "f/g/q2", true),
            ("[", "[", false),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
