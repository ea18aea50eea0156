//! Handlers of the function `instances`: create, install, list and so on.

use netbricks_core::CallError;
use netbricks_core::graph::contain;
use netbricks_core::node::{Handler, HandlerKind, HandlerSide, TENANT_READ, TENANT_WRITE};
use netbricks_core::units::Bytes;

use crate::build;
use crate::handler_call::HandlerCall;
use crate::language::config::Source;
use crate::language::errors::Errors;
use crate::language::text;
use crate::router::Capabilities;
use crate::value::Ether;

use super::declared::Creation;
use super::host::Host;
use super::instance::{Instance, LARGEST, Quotas, State, check_length, told};
use super::switch::PortCounts;

/// Ports of an instance at most.
pub(super) const MOST_PORTS: usize = 64;
/// The size of a ring (packets).
pub(super) const RINGS: std::ops::RangeInclusive<usize> = 64..=2048;

/// The most bytes of a tenant's configuration: the control side flattens it between the operator's commands.
const LARGEST_OF_TENANTS: usize = 64 << 10;

/// An instance as the handler `list` tells it.
#[derive(serde::Serialize)]
struct Listed<'i> {
    name: &'i str,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'i str>,
    state: &'i str,
    worker: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'i str>,
    ports: Vec<PortListed>,
    elements: usize,
    weight: u32,
    frames: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    memory_used: u64,
    held: u64,
    refused: u64,
    dropped: u64,
    created: u64,
    used_ns: u64,
    said: Vec<String>,
}

#[derive(serde::Serialize)]
struct PortListed {
    name: String,
    mac: Option<String>,
    ring: usize,
    waiting: usize,
    #[serde(flatten)]
    counts: PortCounts,
}

/// The handlers.
pub(super) fn handlers() -> Vec<Handler> {
    let write = |name: &str, syntax: &str, summary: &str| Handler::write(name, summary).argument(syntax);
    let read = |name: &str, syntax: &str, summary: &str| Handler::read(name, summary).argument(syntax);
    // These change what all workers share: one of them is asked.
    let all = HandlerSide::AnyWorker;
    vec![
        write(
            "create",
            "NAME [ports=N] [mac=MAC] [ring=64..2048] [frames=N] [memory=BYTES] [weight=N] [worker=N] [owner=TENANT]",
            "Creates an instance without a configuration.",
        )
        .on(all),
        write(
            "install",
            "NAME [VAR=VALUE | \"VAR=VALUE\" ...] NEWLINE TEXT",
            "Gives an instance a configuration; an empty one ends it.",
        )
        .for_tenants(),
        write("suspend", "NAME", "Stops an instance's turns; its rings fill.").for_tenants(),
        write("resume", "NAME", "Lets a suspended instance go on.").for_tenants(),
        write("destroy", "NAME", "Ends an instance and its ports."),
        Handler::read("list", "All instances as JSON; a tenant has its own.").for_tenants(),
        Handler::read("metrics", "Counters of instances as JSON, for Prometheus."),
        read("read", "NAME ELEMENT.HANDLER [PARAMETER]", "Reads a handler of an instance's configuration.")
            .for_tenants(),
        write("write", "NAME ELEMENT.HANDLER [VALUE]", "Writes a handler of an instance's configuration.")
            .for_tenants(),
        read("handlers", "NAME [ELEMENT]", "Handlers of an instance's elements, one a line.").for_tenants(),
        read(TENANT_READ, "TENANT HANDLER [ARGUMENT]", "Reads a handler for a tenant, about its instances."),
        write(TENANT_WRITE, "TENANT HANDLER [ARGUMENT]", "Writes a handler for a tenant, about its instances."),
        Handler::read("switch", "The switch's ports and addresses as JSON."),
        write("map", "MAC PORT", "Makes an address lead to a port of the switch.").on(all),
        write("learning", "true | false", "Has the switch learn addresses, or forget those that it learnt.")
            .on(all),
    ]
}

/// The words `key=value` of a line behind its first word.
struct Options<'l> {
    words: Vec<(&'l str, &'l str)>,
}

impl<'l> Options<'l> {
    fn of(words: &[&'l str]) -> Result<Self, String> {
        let split = |word: &&'l str| {
            word.split_once('=').ok_or_else(|| format!("expected KEY=VALUE, found `{word}`"))
        };
        Ok(Self { words: words.iter().map(split).collect::<Result<_, _>>()? })
    }
    fn take(&mut self, key: &str) -> Option<&'l str> {
        let place = self.words.iter().position(|(known, _)| *known == key)?;
        Some(self.words.remove(place).1)
    }
    fn number(&mut self, key: &str, range: std::ops::RangeInclusive<u64>, usual: u64) -> Result<u64, String> {
        let Some(value) = self.take(key) else { return Ok(usual) };
        match value.parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => Err(format!("`{key}` must be {} to {}, found `{value}`", range.start(), range.end())),
        }
    }
    fn end(self, known: &str) -> Result<(), String> {
        match self.words.first() {
            Some((key, _)) => Err(format!("there is no `{key}`; there are: {known}")),
            None => Ok(()),
        }
    }
}

/// The argument of `install`.
struct Installation<'a> {
    name: String,
    parameters: Vec<(String, String)>,
    text: &'a str,
}

impl<'a> Installation<'a> {
    fn read(argument: &'a str) -> Result<Self, String> {
        let (head, text) = argument.split_once('\n').unwrap_or((argument, ""));
        let words = quoted_words(head)?;
        let [name, parameters @ ..] = &words[..] else { return Err("expected NAME".into()) };
        let split = |word: &String| match word.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(format!(
                "expected VAR=VALUE, found `{word}`; quote what has spaces, as \"VAR=a b\"; the configuration begins \
                 on the next line"
            )),
        };
        let parameters = parameters.iter().map(split).collect::<Result<_, _>>()?;
        Ok(Self { name: name.clone(), parameters, text })
    }
}

/// The words of a line.
///
/// One that begins with `"` ends at the next `"`, and has Click's escapes, such as `\n`.
fn quoted_words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let length = if rest.starts_with('"') {
            let mut escaped = false;
            let end = rest.bytes().skip(1).position(|byte| {
                let ends = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                ends
            });
            end.ok_or_else(|| format!("expected `\"` at the end of `{rest}`"))? + 2
        } else {
            rest.find(char::is_whitespace).unwrap_or(rest.len())
        };
        let (word, after) = rest.split_at(length);
        words.push(if word.starts_with('"') {
            String::from_utf8_lossy(&text::unquote(word)).into_owned()
        } else {
            word.to_owned()
        });
        rest = after.trim_start();
    }
    Ok(words)
}

/// Why a command is not done.
enum Refusal {
    Argument(String),
    /// Its instance is not on this worker.
    Elsewhere(String),
}

impl From<String> for Refusal {
    fn from(problem: String) -> Self {
        Self::Argument(problem)
    }
}
impl From<&str> for Refusal {
    fn from(problem: &str) -> Self {
        Self::Argument(problem.to_owned())
    }
}

/// Whether a name can be an instance's.
pub(super) fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=64).contains(&name.len()) && name.bytes().all(fits)
}

/// The name of a tenant who owns an instance.
pub(super) fn owner(name: &str) -> Result<String, String> {
    match is_name(name) {
        true => Ok(name.to_owned()),
        false => Err(format!("`owner` must be a tenant's name, found `{name}`")),
    }
}

/// Whether an instance can have an owner: it needs a bound, and reaches its ports alone.
///
/// # Errors
/// It has no limit of memory, or instances have capabilities.
pub(super) fn check_owned(
    capabilities: Capabilities,
    owner: Option<&str>,
    quotas: Quotas,
) -> Result<(), String> {
    let Some(owner) = owner else { return Ok(()) };
    if capabilities.files || capabilities.sockets || capabilities.process {
        return Err(format!(
            "an instance of tenant `{owner}` would have the `capabilities` of the operator's: use another function"
        ));
    }
    match quotas.memory {
        Some(_) => Ok(()),
        None => Err(format!("an instance of tenant `{owner}` needs a limit of its `memory`, such as 4MB")),
    }
}

/// The first word of an argument, and what is behind the white space after it.
fn first_word(text: &str) -> (&str, &str) {
    text.split_once(|one: char| one.is_ascii_whitespace()).unwrap_or((text, ""))
}

impl Host {
    /// Runs a handler.
    pub(super) fn command(&mut self, name: &str, argument: &str) -> Result<String, CallError> {
        self.is_stale.set(true);
        self.sync();
        let words: Vec<&str> = argument.split_whitespace().collect();
        let one = || match words[..] {
            [one] => Ok(one),
            _ => Err(Refusal::Argument(format!("expected NAME, found `{argument}`"))),
        };
        let answer = match name {
            "create" => self.create_by(&words).map_err(Refusal::Argument),
            "install" => self.install_by(argument),
            "suspend" => one().and_then(|name| self.suspend(name)),
            "resume" => one().and_then(|name| self.resume(name)),
            "destroy" => one().and_then(|name| self.destroy(name)),
            "list" => self.list(None).map_err(Refusal::Argument),
            TENANT_READ | TENANT_WRITE => return self.command_for(name, argument),
            "metrics" => self.metrics().map_err(Refusal::Argument),
            "read" => self.read(argument, false),
            "write" => self.read(argument, true),
            "handlers" => self.handlers_of(&words),
            "switch" => serde_json::to_string(&self.switch.show()).map_err(|error| error.to_string().into()),
            "map" => self.map(&words).map_err(Refusal::Argument),
            "learning" => match one() {
                Ok("true") => Ok(self.set_learning(true)),
                Ok("false") => Ok(self.set_learning(false)),
                _ => Err(Refusal::Argument(format!("expected true or false, found `{argument}`"))),
            },
            _ => {
                let known =
                    handlers().iter().map(|handler| handler.name.clone()).collect::<Vec<_>>().join(", ");
                return Err(CallError::Unknown { name: name.to_owned(), known });
            }
        };
        // Others may have made news in the same call.
        self.sync();
        let name = name.to_owned();
        answer.map_err(|refusal| match refusal {
            Refusal::Argument(problem) => CallError::Argument { name, problem },
            Refusal::Elsewhere(problem) => CallError::Elsewhere { name, problem },
        })
    }

    /// Runs a handler for a tenant, about an instance that it owns.
    fn command_for(&mut self, kind: &str, argument: &str) -> Result<String, CallError> {
        let (tenant, rest) = first_word(argument);
        let (handler, argument) = first_word(rest);
        let wanted = if kind == TENANT_WRITE { HandlerKind::Write } else { HandlerKind::Read };
        let known = handlers();
        let may = |known: &&Handler| known.tenants && known.kind == wanted && known.name == handler;
        let Some(Handler { name: handler, .. }) = known.into_iter().find(|known| may(&known)) else {
            let problem = format!("a tenant has no such handler, found `{handler}`");
            return Err(CallError::Argument { name: kind.into(), problem });
        };
        if handler == "list" {
            return self.list(Some(tenant)).map_err(|problem| CallError::Argument { name: handler, problem });
        }
        // A name of plain characters is the same word to every handler.
        let (name, _) = first_word(argument);
        let directory = self.shared.directory();
        if !is_name(name) || !directory.is_owned(name, tenant) {
            let problem = format!("tenant `{tenant}` has no instance `{name}`");
            // Another worker may have ended it in this very call.
            return Err(if self.shared.workers == 1 {
                CallError::Argument { name: handler, problem }
            } else {
                CallError::Elsewhere { name: handler, problem }
            });
        }
        let number = directory.find(name).filter(|(_, worker)| *worker == self.me);
        drop(directory);
        let instance = number.and_then(|(number, _)| self.instances.get(number)?.as_ref());
        let is_held = |one: &Instance| one.operator_suspended && one.state == State::Suspended;
        if matches!(&*handler, "resume" | "install") && instance.is_some_and(is_held) {
            let problem = format!("the operator has suspended `{name}`");
            return Err(CallError::Argument { name: handler, problem });
        }
        let answer = self.command(&handler, argument);
        if let Some(instance) = number.and_then(|(number, _)| self.instances.get_mut(number)?.as_mut())
            && handler == "suspend"
            && answer.is_ok()
        {
            instance.operator_suspended = false;
        }
        answer
    }

    /// The number of an instance of this worker. One that waits for its configuration gets it first.
    fn find(&mut self, name: &str) -> Result<usize, Refusal> {
        let directory = self.shared.directory();
        let found = directory.find(name);
        if let Some((number, worker)) = found
            && worker == self.me
        {
            drop(directory);
            self.install_declared(number);
            return Ok(number);
        }
        let problem = match (found, netbricks_core::nearest(name, directory.names())) {
            (Some((_, worker)), _) => format!("instance `{name}` is on worker {worker}"),
            (None, Some(near)) => format!("there is no instance `{name}`; did you mean `{near}`?"),
            (None, None) => format!("there is no instance `{name}`"),
        };
        // Another worker may have ended it in this very call.
        let is_alone = self.shared.workers == 1;
        Err(if is_alone { Refusal::Argument(problem) } else { Refusal::Elsewhere(problem) })
    }

    fn create_by(&mut self, words: &[&str]) -> Result<String, String> {
        let [name, options @ ..] = words else { return Err("expected NAME".into()) };
        if !is_name(name) {
            return Err(format!("`{name}` is no name: use 1 to 64 letters, digits, `-`, `_` and `.`"));
        }
        let usual = Quotas::default();
        let mut options = Options::of(options)?;
        let ports = options.number("ports", 1..=MOST_PORTS as u64, 1)? as usize;
        let ring = options.number("ring", *RINGS.start() as u64..=*RINGS.end() as u64, 256)? as usize;
        let frames = options.number("frames", 1..=1 << 32, usual.frames)?;
        let weight = options.number("weight", 1..=65_536, u64::from(usual.weight))? as u32;
        let bytes = |text: &str| match text.parse::<Bytes>() {
            Ok(bytes) => Ok(bytes.bytes()),
            Err(error) => Err(format!("`memory` must be bytes, such as 4MB: {error}")),
        };
        let memory = options.take("memory").map(bytes).transpose()?;
        let mac =
            options.take("mac").map(|text| Ether::read(text).ok_or(format!("`{text}` is no MAC address")));
        let mac = mac.transpose()?;
        let number = |text: &str| {
            let problem = || format!("`worker` must be a worker's number, from 0, found `{text}`");
            text.parse().map_err(|_| problem())
        };
        let worker = options.take("worker").map(number).transpose()?;
        let owner = options.take("owner").map(owner).transpose()?;
        options.end("ports, mac, ring, frames, memory, weight, worker, owner")?;
        let quotas = Quotas { frames, weight, memory };
        check_owned(self.surroundings.capabilities, owner.as_deref(), quotas)?;
        let creation = Creation { name: (*name).to_owned(), ports, mac, ring, worker, quotas, owner };
        self.shared.change(|directory| directory.create(creation, None))?;
        Ok(format!("created {name}"))
    }

    fn install_by(&mut self, argument: &str) -> Result<String, Refusal> {
        let Installation { name, parameters, text } = Installation::read(argument)?;
        let number = self.find(&name)?;
        let elements = self.install(number, text, &parameters)?;
        Ok(format!("{name} runs {elements} elements"))
    }

    /// Reads and flattens the configuration of an `install` on the control side, so that no packet waits for that.
    pub(super) fn prepare_call(&self, name: &str, argument: &str) -> Result<Option<String>, CallError> {
        match name {
            "install" => self.prepare_install(argument),
            TENANT_WRITE => {
                let (tenant, rest) = first_word(argument);
                let (handler, argument) = first_word(rest);
                if handler != "install" {
                    return Ok(None);
                }
                if argument.len() > LARGEST_OF_TENANTS {
                    let problem = format!(
                        "a tenant's configuration has at most {LARGEST_OF_TENANTS} bytes, found {}",
                        argument.len()
                    );
                    return Err(CallError::Argument { name: handler.into(), problem });
                }
                let prepared = self.prepare_install(argument)?;
                Ok(prepared.map(|prepared| format!("{tenant} install {prepared}")))
            }
            _ => Ok(None),
        }
    }

    fn prepare_install(&self, argument: &str) -> Result<Option<String>, CallError> {
        let refused = |problem| CallError::Argument { name: "install".into(), problem };
        let Installation { name, parameters, text } = Installation::read(argument).map_err(refused)?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        check_length(text).map_err(refused)?;
        let errors = Errors::collected();
        let source = Source { text, file: &name, is_expression: false };
        let flat = contain(|| build::flattened(&source, &parameters, &self.surroundings, &errors));
        let flat =
            flat.map_err(|caught| refused(format!("a panic while it was read: {}", caught.message)))?;
        let flat = flat.ok_or_else(|| refused(told(&errors.lines())))?;
        // A worker flattens what would become too long, and values that are text of the language where they stand.
        let source = Source { text: &flat, file: &name, is_expression: false };
        let again = contain(|| build::flattened(&source, &[], &self.surroundings, &Errors::collected()));
        let is_same = flat.len() <= LARGEST && again.ok().flatten().is_some_and(|again| again == flat);
        Ok(is_same.then(|| format!("{name}\n{flat}")))
    }

    /// Gives an instance a configuration. Returns the number of its elements.
    pub(super) fn install(
        &mut self,
        number: usize,
        text: &str,
        parameters: &[(String, String)],
    ) -> Result<usize, String> {
        let surroundings = self.surroundings.clone();
        let Some(instance) = self.instances[number].as_mut() else { return Err("it is gone".into()) };
        let before = instance.install(text, parameters, &surroundings)?;
        let elements = instance.router.as_ref().map_or(0, |router| router.len());
        self.ended.extend(before);
        self.note_descriptors(number);
        self.wake(number);
        Ok(elements)
    }

    fn suspend(&mut self, name: &str) -> Result<String, Refusal> {
        let number = self.find(name)?;
        let Some(instance) = self.instances[number].as_mut() else { return Err("it is gone".into()) };
        match instance.state {
            State::Running => (instance.state, instance.operator_suspended) = (State::Suspended, true),
            // What its owner has suspended stays so until the operator resumes it.
            State::Suspended if !instance.operator_suspended => instance.operator_suspended = true,
            _ => return Err(format!("`{name}` is {}, not running", instance.state.name()).into()),
        }
        Ok(format!("suspended {name}"))
    }

    fn resume(&mut self, name: &str) -> Result<String, Refusal> {
        let number = self.find(name)?;
        let Some(instance) = self.instances[number].as_mut() else { return Err("it is gone".into()) };
        match instance.state {
            State::Suspended => instance.state = State::Running,
            _ => return Err(format!("`{name}` is {}, not suspended", instance.state.name()).into()),
        }
        self.wake(number);
        Ok(format!("resumed {name}"))
    }

    fn destroy(&mut self, name: &str) -> Result<String, Refusal> {
        let number = self.find(name)?;
        self.shared.change(|directory| directory.destroy(number));
        Ok(format!("destroyed {name}"))
    }

    /// All instances of this worker, or those of a tenant.
    fn list(&self, owner: Option<&str>) -> Result<String, String> {
        let port = |number: &usize| {
            self.switch.port(*number).map(|port| PortListed {
                name: port.name.clone(),
                mac: port.mac.map(|mac| mac.to_string()),
                ring: port.capacity,
                waiting: port.ring.len(),
                counts: port.counts(),
            })
        };
        let listed: Vec<Listed<'_>> = self
            .instances
            .iter()
            .flatten()
            .filter(|one| owner.is_none() || one.owner.as_deref() == owner)
            .map(|one| Listed {
                name: &one.name,
                owner: one.owner.as_deref(),
                state: one.state.name(),
                worker: self.me,
                error: one.state.error(),
                ports: one.ports.iter().filter_map(port).collect(),
                elements: one.router.as_ref().map_or(0, |router| router.len()),
                weight: one.quotas.weight,
                frames: one.quotas.frames,
                memory: one.quotas.memory,
                memory_used: one.memory(),
                held: one.router.as_ref().map_or(0, |router| router.held()),
                refused: one.router.as_ref().map_or(0, |router| router.refused()),
                dropped: one.dropped(),
                created: one.created(),
                used_ns: one.used,
                said: one.said.borrow().clone(),
            })
            .collect();
        serde_json::to_string(&listed).map_err(|error| error.to_string())
    }

    fn read(&mut self, argument: &str, writes: bool) -> Result<String, Refusal> {
        let (name, rest) = text::next_word(argument);
        let number = self.find(&name)?;
        let Some(instance) = &self.instances[number] else { return Err("it is gone".into()) };
        let Some(router) = instance.router.clone() else {
            return Err(format!("`{name}` is {}: it has no elements", instance.state.name()).into());
        };
        self.surroundings.clock.set(self.surroundings.clock.now());
        let call = HandlerCall::parse(rest, router.at(crate::handler_call::ROOT))?;
        let handler = router.handler(call.element, &call.name);
        let visible = handler.is_some_and(|handler| {
            if writes { handler.is_visibly_writable() } else { handler.is_visibly_readable() }
        });
        if !visible {
            let kind = if writes { "write" } else { "read" };
            return Err(format!("no '{}' {kind} handler", call.full_name(&router)).into());
        }
        router.begin_turn();
        let answer = contain(|| if writes { call.write(&router) } else { call.read(&router) });
        self.note_descriptors(number);
        self.wake(number);
        if let Some(instance) = self.instances[number].as_mut()
            && let Some(ended) =
                instance.end_if_spent().or_else(|| if writes { instance.measure() } else { None })
        {
            self.ended.push(ended);
            return Err(instance.state.error().unwrap_or_default().to_owned().into());
        }
        let answer = answer.unwrap_or_else(|caught| {
            // The instance alone is gone.
            if let Some(instance) = self.instances[number].as_mut() {
                self.ended.extend(instance.end());
                instance.state = State::Failed(caught.message.clone());
            }
            Err(format!("the handler panicked: {}", caught.message))
        });
        Ok(answer?)
    }

    fn handlers_of(&mut self, words: &[&str]) -> Result<String, Refusal> {
        let [name, elements @ ..] = words else { return Err("expected NAME [ELEMENT]".into()) };
        let number = self.find(name)?;
        let router = self.instances[number].as_ref().and_then(|one| one.router.as_ref());
        let Some(router) = router else { return Err(format!("`{name}` has no elements").into()) };
        let mut shown = String::new();
        for id in 0..router.len() {
            if elements.is_empty() || elements.contains(&router.name(id)) {
                for line in router.list_handlers(id).lines() {
                    shown += &format!("{}.{line}\n", router.name(id));
                }
            }
        }
        Ok(shown)
    }

    fn map(&mut self, words: &[&str]) -> Result<String, String> {
        let [mac, port] = words else { return Err("expected MAC PORT".into()) };
        let address =
            Ether::read(mac).filter(|mac| !mac.is_group()).ok_or(format!("`{mac}` is no MAC address"))?;
        self.shared.change(|directory| directory.map(address, port))?;
        Ok(format!("{address} leads to {port}"))
    }

    fn set_learning(&self, learning: bool) -> String {
        self.shared.change(|directory| directory.learn(learning));
        format!("learning: {learning}")
    }
}
