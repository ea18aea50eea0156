//! A configuration that runs: its elements, how they are connected, and what they share.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Packet, Pool};
use netbricks_core::{DropReason, Random};

use crate::clock::Clock;
use crate::element::{Class, Element, as_type};
use crate::elements::ip::fuse::Run;
use crate::handler::Handlers;
use crate::language::config::Configuration;
use crate::language::errors::Errors;
use crate::names::Names;
use crate::notifier::Notice;
use crate::scheduler::{Tasks, Timers};

mod at;
mod devices;
mod gather;
mod meeting;
mod memory;
mod outbox;
pub(crate) mod work;

use gather::Gathered;
use meeting::Meetings;
use outbox::Outbox;
use work::Work;

/// How deep elements may call each other: a cycle of pushes ends here.
const MAX_DEPTH: u32 = 512;
/// A call of a handler takes more of the stack than a push: so many times.
const HANDLER_DEPTH: u32 = 16;

/// Capabilities of a configuration's elements beyond it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Files may be read and written.
    pub files: bool,
    /// Sockets may be opened.
    pub sockets: bool,
    /// Network devices may be opened.
    pub devices: bool,
    /// Signals of the process may be waited for, and the process ended.
    pub process: bool,
}

impl Capabilities {
    /// All: for a configuration that its user runs.
    pub const ALL: Self = Self { files: true, sockets: true, devices: true, process: true };
}

/// Surroundings of a configuration.
#[derive(Clone)]
pub struct Surroundings {
    /// Packets come from here.
    pub pool: Pool,
    /// The clock.
    pub clock: Rc<Clock>,
    /// Capabilities of elements.
    pub capabilities: Capabilities,
    /// Takes lines that elements say (Click's chatter).
    pub chatter: Rc<dyn Fn(&str)>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Random numbers that no packet shows, for nonces and cookies: each is drawn once, also where several
    /// configurations share them.
    pub secrets: Rc<RefCell<Random>>,
    /// Whether the configuration may be replaced by its `hotconfig` handler.
    pub reconfigures: bool,
    /// Whether each packet goes all its way before the next one starts; `None` where the clock decides.
    pub exact: Option<bool>,
    /// The most elements of a configuration.
    pub most_elements: usize,
    /// The most bytes that the elements and their tables may take while they are made.
    pub most_memory: usize,
    /// The most elements and bytes together that compound elements and variables expand to.
    pub most_text: usize,
    /// The most bytes of the automata that regular expressions are compiled to.
    pub most_automata: usize,
    /// Pushes, pulls and calls of handlers in one turn, at most.
    ///
    /// A handler counts as 8, and long texts as more.
    pub most_work: u64,
    /// Whether packets that end are kept for the graph around the configuration, which counts them.
    pub keeps_dropped: bool,
}

/// One element's place in a configuration.
struct Instance {
    name: String,
    class: &'static Class,
    configuration: RefCell<String>,
    landmark: Rc<str>,
    element: OnceCell<Rc<dyn Element>>,
    handlers: OnceCell<Rc<Handlers>>,
    /// Where each output leads, if it is a push output.
    outputs: Vec<Option<(usize, usize)>>,
    /// Where each input comes from, if it is a pull input.
    inputs: Vec<Option<(usize, usize)>>,
    output_push: Vec<bool>,
    input_push: Vec<bool>,
    /// Lines about packets that it has said.
    complaints: Cell<u32>,
}

/// Stands where no element was made yet.
struct Unmade;
impl Element for Unmade {}

/// A configuration that runs.
pub struct Router {
    instances: Vec<Instance>,
    by_name: HashMap<String, usize>,
    /// Outputs that lead to an input, and inputs that an output leads to.
    into: HashMap<(usize, usize), Vec<(usize, usize)>>,
    onto: HashMap<(usize, usize), Vec<(usize, usize)>>,
    unmade: Rc<dyn Element>,
    configuration: Configuration,
    /// Tasks of all elements.
    pub tasks: Tasks,
    /// Timers of all elements.
    pub timers: Timers,
    surroundings: Surroundings,
    names: Names,
    attachments: RefCell<HashMap<String, Rc<dyn std::any::Any>>>,
    handlers_ready: Cell<bool>,
    /// Runs while this is positive.
    run_count: Cell<i32>,
    /// The steady time (ns) since which tasks ask for turns and do no work in them.
    pub(crate) waits_since: Cell<Option<u64>>,
    /// Turns of tasks without work since the last that did some.
    pub(crate) idle_turns: Cell<usize>,
    driver_manager: Cell<Option<usize>>,
    random: Cell<u64>,
    depth: Cell<u32>,
    /// Pushes, pulls and calls of handlers in this turn.
    work: Work,
    /// Jumps that scripts have left.
    pub(crate) script_budget: Cell<crate::elements::control::ScriptBudget>,
    dropped: RefCell<Vec<(Packet, DropReason)>>,
    drops: Cell<u64>,
    created: Cell<u64>,
    created_bytes: Cell<u64>,
    outbox: RefCell<Outbox>,
    /// Empty batches, for elements that divide what comes.
    spare: RefCell<Vec<Batch>>,
    /// Packets that elements hold now, and the most that they may hold and make more.
    held: Cell<u64>,
    most_held: Cell<u64>,
    /// Packets that elements could not make, since they hold the most.
    refused: Cell<u64>,
    /// Bytes that automata of regular expressions may still take.
    pub(crate) automata: Cell<usize>,
    /// Bytes that tables may still grow by.
    room: Rc<Cell<usize>>,
    devices: RefCell<Vec<String>>,
    /// Devices by which only answers of elements leave, to those who ask there.
    answering: RefCell<Vec<String>>,
    watched: RefCell<Vec<Watched>>,
    /// A configuration that is to replace this one.
    replacement: RefCell<Option<Rc<Router>>>,
    /// Names, classes and configurations of elements that this configuration's are to replace.
    predecessors: RefCell<HashMap<String, (String, String)>>,
    /// Elements that hear what others say.
    listeners: RefCell<Vec<usize>>,
    /// Signals that elements wait for.
    signals: RefCell<Vec<(i32, usize)>>,
    order: Vec<usize>,
    /// Runs of elements that are done as one, by their first element.
    runs: OnceCell<Vec<Option<Run>>>,
    fuses: Cell<bool>,
    meetings: Meetings,
    gathered: Gathered,
}

/// A descriptor that an element waits for.
pub struct Watched {
    /// The element.
    pub element: usize,
    /// Which of its descriptors.
    pub number: usize,
    /// The descriptor, a copy of the element's own.
    pub descriptor: Rc<OwnedFd>,
    /// Whether it waits to write instead of to read.
    pub write: bool,
}

/// An element in its configuration: what an element's methods get to reach the others.
#[derive(Clone, Copy)]
pub struct At<'r> {
    /// The configuration.
    pub router: &'r Router,
    /// The element's number.
    pub id: usize,
}

/// Things that an element is made with, beside its arguments.
pub struct Setup<'r> {
    /// The element that is made.
    pub at: At<'r>,
    /// Where errors are told.
    pub errors: &'r Errors,
}

impl<'r> Setup<'r> {
    /// The number of inputs.
    pub fn inputs(&self) -> usize {
        self.at.inputs()
    }
    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.at.outputs()
    }
}

/// Ports of an element as the configuration resolves them.
pub struct Ports {
    /// Whether each input is push.
    pub input_push: Vec<bool>,
    /// Whether each output is push.
    pub output_push: Vec<bool>,
}

impl Router {
    /// Makes a configuration's elements, without configuring them.
    pub(crate) fn assemble(
        configuration: Configuration,
        classes: Vec<&'static Class>,
        ports: Vec<Ports>,
        surroundings: Surroundings,
    ) -> Self {
        let mut instances: Vec<Instance> = configuration
            .elements
            .iter()
            .zip(classes)
            .zip(ports)
            .map(|((declaration, class), ports)| Instance {
                name: declaration.name.clone(),
                class,
                configuration: RefCell::new(declaration.config.clone()),
                landmark: Rc::clone(&declaration.landmark),
                element: OnceCell::new(),
                handlers: OnceCell::new(),
                outputs: vec![None; ports.output_push.len()],
                inputs: vec![None; ports.input_push.len()],
                output_push: ports.output_push,
                input_push: ports.input_push,
                complaints: Cell::new(0),
            })
            .collect();
        for connection in &configuration.connections {
            let (from, to) = (connection.from, connection.to);
            if instances[from.0].output_push.get(from.1) == Some(&true) {
                instances[from.0].outputs[from.1] = Some(to);
            } else if let Some(input) = instances[to.0].inputs.get_mut(to.1) {
                *input = Some(from);
            }
        }
        let by_name =
            instances.iter().enumerate().map(|(id, instance)| (instance.name.clone(), id)).collect();
        let (mut into, mut onto): (HashMap<_, Vec<_>>, HashMap<_, Vec<_>>) = Default::default();
        for connection in &configuration.connections {
            into.entry(connection.to).or_default().push(connection.from);
            onto.entry(connection.from).or_default().push(connection.to);
        }
        let mut order: Vec<usize> = (0..instances.len()).collect();
        order.sort_by_key(|id| instances[*id].class.phase);
        let (seed, most_memory) = (surroundings.seed | 1, surroundings.most_memory);
        let work = Work::new(surroundings.most_work);
        let automata = Cell::new(surroundings.most_automata);
        Self {
            instances,
            by_name,
            into,
            onto,
            unmade: Rc::new(Unmade),
            configuration,
            tasks: Tasks::default(),
            timers: Timers::default(),
            surroundings,
            names: Names::default(),
            attachments: RefCell::default(),
            handlers_ready: Cell::new(false),
            run_count: Cell::new(1),
            waits_since: Cell::default(),
            idle_turns: Cell::default(),
            driver_manager: Cell::new(None),
            random: Cell::new(seed),
            depth: Cell::new(0),
            work,
            script_budget: Cell::default(),
            dropped: RefCell::default(),
            drops: Cell::new(0),
            created: Cell::new(0),
            created_bytes: Cell::new(0),
            outbox: RefCell::default(),
            spare: RefCell::default(),
            held: Cell::new(0),
            most_held: Cell::new(u64::MAX),
            refused: Cell::new(0),
            automata,
            room: Rc::new(Cell::new(most_memory)),
            devices: RefCell::default(),
            answering: RefCell::default(),
            watched: RefCell::default(),
            replacement: RefCell::default(),
            predecessors: RefCell::default(),
            listeners: RefCell::default(),
            signals: RefCell::default(),
            order,
            runs: OnceCell::new(),
            fuses: Cell::new(true),
            meetings: Meetings::default(),
            gathered: Gathered::default(),
        }
    }

    /// Configures and initialises all elements. `false` after errors were told.
    pub(crate) fn start(&self, errors: &Errors) -> bool {
        self.configure(errors) && self.initialize(errors)
    }

    /// Configures all elements, which has no effect outside of them. `false` after errors were told.
    pub(crate) fn configure(&self, errors: &Errors) -> bool {
        let mut good = true;
        let mut taken = 0_usize;
        for &id in &self.order {
            let instance = &self.instances[id];
            let heading = format!("While configuring '{} :: {}':", instance.name, instance.class.name);
            good &= errors.within(&instance.landmark, &heading, |errors| {
                let at = At { router: self, id };
                let before = errors.count();
                let text = instance.configuration.borrow().clone();
                let mut arguments = crate::arguments::Arguments::new(&text, at, errors);
                let made = (instance.class.configure)(&mut arguments, &Setup { at, errors });
                match made {
                    Some(element) if errors.count() == before => {
                        instance.element.set(element).is_ok() && self.takes_memory(id, &mut taken, errors)
                    }
                    _ => {
                        if errors.count() == before {
                            errors.error("unspecified error");
                        }
                        false
                    }
                }
            });
            if self.room.get() == 0 {
                // Each further element would take more.
                break;
            }
        }
        if !good {
            errors.error("Router could not be initialized!");
            self.cleanup();
        }
        self.handlers_ready.set(good);
        good
    }

    /// Initialises all elements: files and sockets are opened, tasks begin. `false` after errors were told.
    pub(crate) fn initialize(&self, errors: &Errors) -> bool {
        for &id in &self.order {
            let instance = &self.instances[id];
            let heading = format!("While initializing '{} :: {}':", instance.name, instance.class.name);
            let done = errors.within(&instance.landmark, &heading, |errors| {
                let before = errors.count();
                let done = self.element(id).initialize(At { router: self, id }, errors);
                if !done && errors.count() == before && instance.class.name != "Error" {
                    errors.error("unspecified error");
                }
                done
            });
            if !done {
                errors.error("Router could not be initialized!");
                self.cleanup();
                return false;
            }
        }
        // In a chain the node's first packets wait for these: names are known when all elements have begun.
        self.runs();
        self.meetings();
        self.meetings.warn(errors);
        true
    }

    /// Ends all elements: packets that they hold are dropped, files written out.
    pub fn cleanup(&self) {
        for &id in self.order.iter().rev() {
            if let Some(element) = self.instances[id].element.get() {
                element.cleanup(At { router: self, id });
            }
        }
        // Copies of descriptors would keep connections open that elements have closed.
        self.watched.borrow_mut().clear();
    }

    /// Hands on what the elements of an earlier configuration held to those of the same name and class.
    pub fn take_state(&self, before: &Self) {
        for (id, instance) in self.instances.iter().enumerate() {
            if let Some(&old) = before.by_name.get(&instance.name)
                && before.instances[old].class.name == instance.class.name
            {
                self.element(id).take_state(At { router: self, id }, before.element(old).as_ref());
            }
        }
    }

    /// Runs of elements that are done as one, by the number of their first element.
    pub(crate) fn runs(&self) -> &[Option<Run>] {
        self.runs.get_or_init(|| {
            let next = |id: usize| match self.instances.get(id)?.outputs.first()? {
                Some((next, 0)) => Some(*next),
                _ => None,
            };
            (0..self.len()).map(|id| Run::at(self, id, next)).collect()
        })
    }
    /// Does the work of a run that begins at an element.
    ///
    /// `false`: there is none, or its elements must do the work.
    #[inline]
    fn runs_fused(&self, id: usize, input: usize, batch: &mut Batch) -> bool {
        let run = self.runs().get(id).and_then(Option::as_ref);
        input == 0 && run.is_some_and(|run| self.fuses.get() && run.go(self, batch))
    }
    /// Whether runs are done as one, which is the usual way.
    pub(crate) fn set_fusing(&self, fuses: bool) {
        self.fuses.set(fuses);
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.instances.len()
    }
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }
    /// An element by its number.
    #[inline]
    pub fn element(&self, id: usize) -> &Rc<dyn Element> {
        self.instances.get(id).and_then(|instance| instance.element.get()).unwrap_or(&self.unmade)
    }
    /// An element in its place.
    pub fn at(&self, id: usize) -> At<'_> {
        At { router: self, id }
    }
    /// The name of an element.
    pub fn name(&self, id: usize) -> &str {
        self.instances.get(id).map_or("", |instance| &instance.name)
    }
    /// The class of an element.
    pub fn class(&self, id: usize) -> &'static str {
        self.instances.get(id).map_or("", |instance| instance.class.name)
    }
    /// The class of an element, with all that is known of it.
    pub(crate) fn class_of(&self, id: usize) -> Option<&'static Class> {
        self.instances.get(id).map(|instance| instance.class)
    }
    /// The configuration that the elements were made from, with what handlers changed since.
    pub fn configuration(&self) -> Configuration {
        let mut configuration = self.configuration.clone();
        for (declaration, instance) in configuration.elements.iter_mut().zip(&self.instances) {
            declaration.config.clone_from(&instance.configuration.borrow());
        }
        configuration
    }
    /// The configuration string of an element.
    pub fn configuration_of(&self, id: usize) -> String {
        self.instances.get(id).map(|instance| instance.configuration.borrow().clone()).unwrap_or_default()
    }
    /// Notes that an element's configuration string has changed.
    pub fn set_configuration_of(&self, id: usize, text: &str) {
        if let Some(instance) = self.instances.get(id) {
            text.clone_into(&mut instance.configuration.borrow_mut());
        }
    }
    /// The element of exactly this name.
    pub fn exactly(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
    /// The element that a name means to the element `context`: in its compound, or in one around it.
    pub fn find(&self, name: &str, context: usize) -> Option<usize> {
        let mut scope = self.name(context);
        scope = &scope[..scope.rfind('/').map_or(0, |place| place + 1)];
        loop {
            if let Some(id) = self.by_name.get(&format!("{scope}{name}")) {
                self.note_name(context, *id);
                return Some(*id);
            }
            if scope.is_empty() {
                return None;
            }
            let inner = &scope[..scope.len() - 1];
            scope = &inner[..inner.rfind('/').map_or(0, |place| place + 1)];
        }
    }
    /// An element as one of a type.
    pub fn element_as<E: Element>(&self, id: usize) -> Option<&E> {
        as_type(self.element(id).as_ref())
    }
    /// All elements' numbers in the order in which they were configured.
    pub fn configure_order(&self) -> &[usize] {
        &self.order
    }

    /// The handlers of an element.
    pub fn handlers(&self, id: usize) -> Rc<Handlers> {
        let Some(instance) = self.instances.get(id) else { return Rc::default() };
        let make = || {
            let mut handlers = Handlers::default();
            self.element(id).handlers(&mut handlers);
            if instance.class.live && handlers.find("config").is_none() {
                handlers.change_configuration();
            }
            Rc::new(handlers)
        };
        Rc::clone(instance.handlers.get_or_init(make))
    }
    /// Whether handlers can be called: all elements are configured.
    pub fn handlers_ready(&self) -> bool {
        self.handlers_ready.get()
    }

    /// Something that elements share by name, such as rewriters' patterns; made where it is missing.
    pub fn shared<T: 'static>(&self, name: &str, make: impl FnOnce() -> T) -> Rc<T> {
        let known = self.attachments.borrow().get(name).cloned();
        if let Some(known) = known.and_then(|known| known.downcast::<T>().ok()) {
            return known;
        }
        let made = Rc::new(make());
        self.attachments.borrow_mut().insert(name.to_owned(), Rc::clone(&made) as Rc<dyn std::any::Any>);
        made
    }
    /// The same, if it is there.
    pub fn attachment<T: 'static>(&self, name: &str) -> Option<Rc<T>> {
        self.attachments.borrow().get(name).cloned().and_then(|known| known.downcast().ok())
    }

    /// Outputs from which packets come to an input.
    pub fn sources(&self, element: usize, input: usize) -> Vec<(usize, usize)> {
        self.into.get(&(element, input)).cloned().unwrap_or_default()
    }
    /// Inputs to which packets go from an output.
    pub fn targets(&self, element: usize, output: usize) -> Vec<(usize, usize)> {
        self.onto.get(&(element, output)).cloned().unwrap_or_default()
    }
    /// Ports on the other side of an element that packets of one port pass.
    pub fn connected_ports(&self, element: usize, port: usize, is_output: bool) -> Vec<usize> {
        let Some(instance) = self.instances.get(element) else { return Vec::new() };
        let flow = instance.class.flow;
        if is_output {
            (0..instance.inputs.len())
                .filter(|input| crate::language::ports::is_packet_flow_connected(flow, *input, port))
                .collect()
        } else {
            (0..instance.outputs.len())
                .filter(|output| crate::language::ports::is_packet_flow_connected(flow, port, *output))
                .collect()
        }
    }
    /// Whether a search that came from the other side meets a port that is driven from this side.
    pub(crate) fn tells_nothing(&self, element: usize, port: usize, notice: Notice) -> bool {
        let Some(instance) = self.instances.get(element) else { return false };
        match notice {
            Notice::Empty => instance.output_push.get(port) == Some(&true),
            Notice::Full => instance.input_push.get(port) == Some(&false),
        }
    }
    pub(crate) fn may_create(&self, element: usize) -> bool {
        self.instances.get(element).is_some_and(|instance| instance.class.creates)
    }

    /// Names of values.
    pub fn names(&self) -> &Names {
        &self.names
    }
    /// The configuration's surroundings.
    pub fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }
    /// The time of day (ns since 1970).
    #[inline]
    pub fn now(&self) -> u64 {
        self.surroundings.clock.now()
    }
    /// The steady time of timers (ns).
    #[inline]
    pub fn steady(&self) -> u64 {
        self.surroundings.clock.steady()
    }
    /// Says a line (Click's chatter).
    pub fn chatter(&self, line: &str) {
        (self.surroundings.chatter)(line);
        if self.listeners.borrow().is_empty() {
            return;
        }
        // What a listener says in turn is not heard: it would not end.
        let listeners = self.listeners.take();
        for &element in &listeners {
            self.element(element).heard(self.at(element), line);
        }
        self.listeners.borrow_mut().splice(0..0, listeners);
    }
    /// A random number of 32 bits.
    pub fn random(&self) -> u32 {
        // SplitMix64: one addition and a mix of bits.
        let state = self.random.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.random.set(state);
        let mut mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) >> 32) as u32
    }
    /// A random number below a bound, evenly.
    pub fn random_below(&self, bound: u32) -> u32 {
        ((u64::from(self.random()) * u64::from(bound.max(1))) >> 32) as u32
    }
    /// A random number that no packet shows, and that [`random`](Self::random) does not give away.
    pub fn secret(&self) -> u64 {
        self.surroundings.secrets.borrow_mut().draw()
    }
    /// Begins the sequence of random numbers that belongs to a seed.
    pub fn seed(&self, seed: u64) {
        self.random.set(seed);
    }

    /// Asks the driver to stop: it does when this was called as often as it was told to go on.
    pub fn please_stop(&self) {
        self.adjust_run_count(-1);
    }
    /// Tells the driver to go on once more (positive) or to stop (negative).
    pub fn adjust_run_count(&self, change: i32) {
        self.run_count.set(self.run_count.get().saturating_add(change));
    }
    /// Sets how often the driver was told to go on.
    pub fn set_run_count(&self, count: i32) {
        self.run_count.set(count);
    }
    /// Positive while the driver goes on.
    pub fn run_count(&self) -> i32 {
        self.run_count.get()
    }
    /// The element that decides when the driver was asked to stop.
    pub fn driver_manager(&self) -> Option<usize> {
        self.driver_manager.get()
    }
    /// Makes an element the one that decides when the driver was asked to stop.
    pub fn set_driver_manager(&self, element: usize) {
        self.driver_manager.set(Some(element));
    }

    /// Notes which configuration this one is to replace, before it starts.
    pub(crate) fn set_predecessor(&self, before: &Configuration) {
        let mut predecessors = self.predecessors.borrow_mut();
        for declaration in &before.elements {
            let of = (declaration.class.clone(), declaration.config.clone());
            predecessors.insert(declaration.name.clone(), of);
        }
    }

    /// Asks for another configuration in this one's place.
    pub fn replace_with(&self, router: Rc<Self>) {
        *self.replacement.borrow_mut() = Some(router);
    }
    /// Whether another configuration waits to take this one's place.
    pub fn is_replaced(&self) -> bool {
        self.replacement.borrow().is_some()
    }
    /// The configuration that was asked for.
    pub fn take_replacement(&self) -> Option<Rc<Self>> {
        self.replacement.borrow_mut().take()
    }

    /// Signals that elements wait for, by number.
    pub fn signals(&self) -> Vec<i32> {
        self.signals.borrow().iter().map(|(signal, _)| *signal).collect()
    }
    /// Tells the elements that wait for it that a signal came. Whether any did; each waits once.
    pub fn signalled(&self, signal: i32) -> bool {
        let mut waiting = Vec::new();
        self.signals.borrow_mut().retain(|(number, element)| {
            if *number == signal {
                waiting.push(*element);
            }
            *number != signal
        });
        for element in &waiting {
            self.element(*element).signalled(self.at(*element), signal);
        }
        !waiting.is_empty()
    }

    /// Descriptors that elements wait for.
    pub fn watched(&self) -> std::cell::Ref<'_, Vec<Watched>> {
        self.watched.borrow()
    }

    /// Packets that ended since the last call, where they are kept.
    pub(crate) fn take_dropped(&self, mut each: impl FnMut(Packet, DropReason)) {
        self.dropped.borrow_mut().drain(..).for_each(|(packet, reason)| each(packet, reason));
    }
    /// The number of packets that ended since the start.
    pub fn drops(&self) -> u64 {
        self.drops.get()
    }
    /// Counts packets that come in from outside.
    pub fn arrived(&self, packets: u64) {
        self.waits_since.set(None);
        self.idle_turns.set(0);
        self.held.set(self.held.get() + packets);
    }
    /// Packets that elements hold: those that came in or were created, less those that left or ended.
    pub fn held(&self) -> u64 {
        self.held.get()
    }
    /// As [`held`](Self::held), where what left, ended or was created since it was last asked for still counts as before.
    pub(crate) fn held_as_counted(&self) -> u64 {
        let unsettled = self.dropped.borrow().len() + self.outbox.borrow().len();
        (self.held.get() + unsettled as u64).saturating_sub(self.created.get())
    }
    /// Lets elements create packets only while they hold fewer than so many.
    pub fn limit_held(&self, packets: u64) {
        self.most_held.set(packets);
    }
    /// Whether elements hold the most; those that left or ended since the last settlement still have their frames.
    pub fn is_full(&self) -> bool {
        self.room_for_packets() == 0
    }
    /// Packets that elements may hold beside those that they hold.
    pub(crate) fn room_for_packets(&self) -> u64 {
        let most = self.most_held.get();
        if most == u64::MAX {
            return most;
        }
        let unsettled = self.dropped.borrow().len() + self.outbox.borrow().len();
        most.saturating_sub(self.held.get() + unsettled as u64)
    }
    /// Enters a handler. `false` where handlers and pushes are nested too deeply, or the turn has no work left.
    pub(crate) fn enter_handler(&self) -> bool {
        let depth = self.depth.get();
        if !self.work.step(work::HANDLER, depth == 0) || depth + HANDLER_DEPTH > MAX_DEPTH {
            return false;
        }
        self.depth.set(depth + HANDLER_DEPTH);
        true
    }
    /// Leaves a handler that was entered.
    pub(crate) fn leave_handler(&self) {
        self.depth.set(self.depth.get().saturating_sub(HANDLER_DEPTH));
    }
    /// Packets that elements could not create because of that limit.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }
    /// The packets that elements of another configuration hold now: none are held here any more.
    pub(crate) fn take_held(&self) -> u64 {
        self.held.replace(0)
    }
    pub(crate) fn count_left(&self, packets: u64) {
        self.held.set(self.held.get().saturating_sub(packets));
    }
    /// Packets that elements created since [`take_created`](Self::take_created).
    pub(crate) fn created(&self) -> u64 {
        self.created.get()
    }
    /// Packets and bytes that elements created since the last call.
    pub fn take_created(&self) -> (u64, u64) {
        (self.created.replace(0), self.created_bytes.replace(0))
    }
    /// Packets that left for devices since the last call, with the device's number.
    pub(crate) fn take_outbox(&self, mut each: impl FnMut(usize, Packet)) {
        self.take_sent(|device, batch| batch.drain().for_each(|packet| each(device, packet)));
    }
    /// The same in batches: those of a device come in the order in which they left.
    pub(crate) fn take_sent(&self, each: impl FnMut(usize, &mut Batch)) {
        self.outbox.borrow_mut().drain(each);
    }
    /// Packets that left for devices since they were last taken.
    pub(crate) fn sent(&self) -> usize {
        self.outbox.borrow().len()
    }
    /// An empty batch, which [`keep_spare`](Self::keep_spare) takes back.
    pub(crate) fn spare_batch(&self) -> Batch {
        self.spare.borrow_mut().pop().unwrap_or_default()
    }
    /// Keeps an empty batch for the next who needs one.
    pub(crate) fn keep_spare(&self, batch: Batch) {
        self.spare.borrow_mut().push(batch);
    }
}
