//! Connections: `a [1] -> [0] b :: C(config) => c, d`, with groups and port lists.

use std::rc::Rc;

use super::body::{ClassId, PORT_KINDS, Type};
use super::parser::{Block, Parser};
use super::scanner::Kind;

/// The largest number of a port.
const MAX_PORT: usize = 1 << 14;

/// The ports in front of or behind an element.
#[derive(Clone, Debug, Default)]
struct Ports {
    list: Vec<usize>,
    /// Whether the list goes on behind its last port as far as needed.
    expandable: bool,
}

impl Ports {
    fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn least(&self) -> usize {
        self.list.len().max(1)
    }
}

/// One element of a connection, declared or named.
#[derive(Debug)]
struct Item {
    name: String,
    class: Option<ClassId>,
    declared: Option<ClassId>,
    /// Whether nothing but a name stands in the text.
    bare: bool,
    config: String,
    landmark: Rc<str>,
    /// Its inputs and its outputs.
    ports: [Ports; 2],
    element: usize,
}

/// The result of looking for an element.
enum Found {
    Item(Box<Item>),
    /// An `input` or `output` that the ports imply.
    Implied(Box<Item>),
    Nothing,
}

/// The elements between two arrows.
struct Step {
    items: Vec<Item>,
    implied: bool,
}

impl Parser<'_> {
    /// Reads a connection or a declaration up to its end.
    pub(super) fn connection(&mut self, block: &mut Block) {
        let mut last: Vec<Item> = Vec::new();
        let mut connector = Kind::Arrow;
        while let Some(mut step) = self.step(block, last.is_empty()) {
            self.resolve(&mut step, last.is_empty());
            if last.is_empty() {
                self.useless_ports(&step.items, 0);
            } else {
                self.connect_all(&last, &step.items, connector);
            }
            last = step.items;
            match self.connector() {
                Some(kind) => connector = kind,
                None => break,
            }
        }
        self.useless_ports(&last, 1);
        block.ended_in_output = matches!(last.as_slice(), [only] if self.is_output(only.element));
    }

    /// Reads the elements up to the next arrow; `None` where none stands here.
    fn step(&mut self, block: &Block, first: bool) -> Option<Step> {
        let mut step = Step { items: Vec::new(), implied: false };
        loop {
            match self.item(block, first, step.items.is_empty()) {
                Found::Item(item) => step.items.push(*item),
                Found::Implied(item) => {
                    step.implied = true;
                    step.items.push(*item);
                }
                Found::Nothing if step.items.is_empty() => return None,
                Found::Nothing => {}
            }
            if !self.scanner.accept(Kind::Symbol(','), self.errors) {
                return Some(step);
            }
        }
    }

    fn item(&mut self, block: &Block, first: bool, alone: bool) -> Found {
        let mut ports = [Ports::default(), Ports::default()];
        self.ports(&mut ports[0]);
        let token = self.next();
        match token.kind {
            Kind::Identifier => {
                let class = self.table.find(&token.text);
                let mut item = self.new_item(token.text, class, ports);
                item.bare = true;
                self.declaration(&mut item, block);
                Found::Item(item)
            }
            Kind::Symbol('{') => {
                let class = self.compound("", block);
                let mut item = self.new_item(String::new(), Some(class), ports);
                self.declaration(&mut item, block);
                Found::Item(item)
            }
            Kind::Symbol('(') => {
                let name = self.body.anonymous("");
                let counts = self.group(&name, block);
                for (ports, count) in ports.iter_mut().zip(counts) {
                    if ports.is_empty() {
                        ports.list = (0..count).collect();
                    }
                }
                let mut item = self.new_item(name, None, ports);
                self.declaration(&mut item, block);
                Found::Item(item)
            }
            kind => {
                let listed = !ports[0].is_empty();
                let implied = block.nested()
                    && match kind {
                        Kind::Arrow | Kind::DoubleArrow => first && (listed || alone),
                        Kind::Symbol(',') => listed,
                        Kind::DoubleColon => false,
                        _ => !first && (listed || alone),
                    };
                if implied {
                    if kind.is_arrow() && !listed && !block.ended_in_output {
                        let landmark = self.scanner.landmark();
                        let arrow = &token.text;
                        let message = format!("suggest 'input {arrow}' or '[0] {arrow}' to start connection");
                        self.errors.warning_at(&landmark, &message);
                    }
                    if first {
                        ports.swap(0, 1);
                    }
                    let name = PORT_KINDS[usize::from(!first)];
                    self.scanner.put_back(token);
                    let class = self.table.find(name);
                    return Found::Implied(self.new_item(name.to_owned(), class, ports));
                }
                if listed {
                    self.error("stranded port ignored");
                }
                if alone && block.nested() && first {
                    self.scanner.put_back(token);
                } else if alone {
                    self.syntax_error(&token);
                }
                Found::Nothing
            }
        }
    }

    fn new_item(&mut self, name: String, class: Option<ClassId>, ports: [Ports; 2]) -> Box<Item> {
        let landmark = self.scanner.element_landmark();
        Box::new(Item {
            name,
            class,
            declared: None,
            bare: false,
            config: String::new(),
            landmark,
            ports,
            element: 0,
        })
    }

    /// Reads what may follow a name: `:: Class`, `(config)` and `[port]`.
    fn declaration(&mut self, item: &mut Item, block: &Block) {
        if self.scanner.accept(Kind::DoubleColon, self.errors) {
            item.bare = false;
            let token = self.next();
            match token.kind {
                Kind::Identifier => item.declared = Some(self.class(&token.text, true)),
                Kind::Symbol('{') => item.declared = Some(self.compound("", block)),
                _ => {
                    self.error("missing element type in declaration");
                    item.declared = Some(self.class(&item.name, true));
                    self.scanner.put_back(token);
                }
            }
        }
        let token = self.next();
        if token.is(Kind::Symbol('(')) {
            if self.body.find(&item.name).is_some() {
                self.error("configuration string ignored on element reference");
            }
            item.config = self.scanner.configuration(self.errors);
            self.scanner.expect(Kind::Symbol(')'), self.errors);
            item.bare = false;
        } else {
            self.scanner.put_back(token);
        }
        let token = self.next();
        let bracket = token.is(Kind::Symbol('['));
        self.scanner.put_back(token);
        if bracket {
            item.ports[1] = Ports::default();
            self.ports(&mut item.ports[1]);
        }
    }

    /// Reads `[0, 2-3]` or `[]`, if it stands here.
    fn ports(&mut self, ports: &mut Ports) {
        if !self.scanner.accept(Kind::Symbol('['), self.errors) {
            return;
        }
        let mut last = None;
        let mut dash = false;
        loop {
            let token = self.next();
            match token.kind {
                Kind::Identifier => {
                    let port = self.port_number(&token.text);
                    let range = match last {
                        Some(last) if dash => last + 1..=port,
                        None if dash => 0..=port,
                        _ => port..=port,
                    };
                    last = Some(if dash { port.max(*range.start()) } else { port });
                    self.list_ports(range, ports);
                }
                Kind::Symbol(']') => {
                    if ports.is_empty() {
                        ports.list.push(0);
                    }
                    ports.expandable = true;
                    return;
                }
                _ => {
                    self.error("syntax error: expected port number");
                    self.scanner.put_back(token);
                    return;
                }
            }
            let token = self.next();
            match token.kind {
                Kind::Symbol(']') => return,
                Kind::Symbol('-') if !dash => dash = true,
                Kind::Symbol(',') => dash = false,
                _ => {
                    self.error("syntax error: expected ','");
                    self.scanner.put_back(token);
                }
            }
        }
    }

    fn list_ports(&mut self, range: std::ops::RangeInclusive<usize>, ports: &mut Ports) {
        let count = range.clone().count();
        if self.listed_ports < count {
            self.error("too many ports");
            return;
        }
        self.listed_ports -= count;
        ports.list.extend(range);
    }

    fn port_number(&mut self, text: &str) -> usize {
        let (digits, radix) = match text.as_bytes() {
            [b'0', b'x' | b'X', ..] => (&text[2..], 16),
            [b'0', _, ..] => (text, 8),
            _ => (text, 10),
        };
        match i64::from_str_radix(digits, radix) {
            Ok(port) => match usize::try_from(port) {
                Ok(port) if port < MAX_PORT => port,
                _ => {
                    self.error(&format!("port number {text} is not below {MAX_PORT}"));
                    0
                }
            },
            Err(_) => {
                self.error("syntax error: port number should be integer");
                0
            }
        }
    }

    /// Declares the elements of a step, and finds those that are declared.
    fn resolve(&mut self, step: &mut Step, first: bool) {
        let token = self.next();
        let arrow = token.kind.is_arrow();
        self.scanner.put_back(token);
        if step.implied && !first && arrow {
            self.error("implicit ports used in the middle of a chain");
        }
        let any_ports = step.items.iter().any(|item| item.ports.iter().any(|ports| !ports.is_empty()));
        if first && !arrow && !any_ports && !step.implied {
            spread(&mut step.items);
        }
        for item in &mut step.items {
            if item.class.is_none() && self.table.is_open() {
                item.class = self.table.find(&item.name);
            }
            let found = self.body.find(&item.name).filter(|_| item.class.is_none());
            if let Some(element) = found {
                item.element = element;
                if item.declared.is_some() {
                    self.errors
                        .error_at(&item.landmark, &format!("redeclaration of element '{}'", item.name));
                    let node = &self.body.nodes[element];
                    if node.class != Type::Tunnel {
                        let message = format!("element '{}' previously declared here", item.name);
                        self.errors.error_at(&node.landmark, &message);
                    }
                }
                continue;
            }
            let class = match (item.class, item.declared) {
                (Some(class), declared) => {
                    if declared.is_some() {
                        let message = format!("class '{}' used as element name", item.name);
                        self.errors.error_at(&item.landmark, &message);
                    }
                    item.name = self.body.anonymous(&item.name);
                    class
                }
                (None, Some(declared)) => declared,
                (None, None) => {
                    if !self.table.is_open() {
                        let reason = self.table.reason(&item.name);
                        let message = format!("undeclared element '{}'{reason}", item.name);
                        self.errors.error_at(&item.landmark, &message);
                    }
                    let (class, _) = self.table.force(&item.name);
                    item.name = self.body.anonymous(&item.name);
                    class
                }
            };
            let here = self.scanner.landmark();
            let config = std::mem::take(&mut item.config);
            item.element = self.body.add(
                &item.name,
                Type::Class(class),
                config,
                Rc::clone(&item.landmark),
                &here,
                self.errors,
            );
        }
    }

    fn useless_ports(&mut self, items: &[Item], side: usize) {
        if items.iter().any(|item| !item.ports[side].is_empty()) {
            self.error(
                ["input ports ignored at start of chain", "output ports ignored at end of chain"][side],
            );
        }
    }

    /// Reads the arrow that continues a connection; `None` where it ends.
    fn connector(&mut self) -> Option<Kind> {
        loop {
            let token = self.next();
            match token.kind {
                Kind::Arrow | Kind::DoubleArrow => return Some(token.kind),
                Kind::Symbol(',') | Kind::DoubleColon => self.syntax_error(&token),
                Kind::Symbol(';') | Kind::End => return None,
                Kind::Symbol('{' | '}' | '[' | ')')
                | Kind::Identifier
                | Kind::DoubleBar
                | Kind::ElementClass
                | Kind::Require
                | Kind::Provide
                | Kind::Define => {
                    self.scanner.put_back(token);
                    return None;
                }
                Kind::Variable | Kind::Dots => {
                    self.syntax_error(&token);
                    self.scanner.put_back(token);
                    return None;
                }
                Kind::Symbol(_) => {
                    self.syntax_error(&token);
                    return None;
                }
            }
        }
    }

    /// Connects all outputs of one step to the inputs of the next.
    fn connect_all(&mut self, from: &[Item], to: &[Item], connector: Kind) {
        let mut sides = [Side::of(to, 0), Side::of(from, 1)];
        if sides[0].expandable + sides[1].expandable > 1 {
            self.error("at most one expandable port allowed per connection");
            let fewer = usize::from(sides[0].least < sides[1].least);
            sides[fewer].expandable = 0;
        }
        let many = connector == Kind::DoubleArrow;
        for side in 0..2 {
            if many
                && sides[side].least == 1
                && sides[1 - side].least > 1
                && sides[side].items[0].ports[side].is_empty()
            {
                sides[side].expandable = 1;
            }
        }
        let [inputs, outputs] = sides.each_ref().map(|side| side.least);
        for (side, other) in [(0, outputs), (1, inputs)] {
            let side = &mut sides[side];
            side.moves = side.least > 1 || side.expandable > 0;
            side.extra = if side.expandable > 0 { other.saturating_sub(side.least) } else { 0 };
        }
        if sides[0].moves && sides[1].moves {
            if !many {
                self.error("syntax error: many-to-many connections require '=>'");
            }
            let open = sides.each_ref().map(|side| side.expandable > 0);
            let more = |open: bool| if open { " or more" } else { "" };
            if (!open[0] && inputs < outputs) || (!open[1] && outputs < inputs) {
                self.error(&format!(
                    "connection mismatch: {outputs}{} outputs connected to {inputs}{} inputs",
                    more(!open[0] && open[1] && inputs < outputs),
                    more(open[0] && !open[1] && outputs < inputs),
                ));
            }
        } else if !sides[0].moves && !sides[1].moves {
            sides[0].moves = true;
        }
        let landmark = self.scanner.landmark();
        let [mut inputs, mut outputs] = sides;
        while let (Some(input), Some(output)) = (inputs.port(), outputs.port()) {
            self.body.connect(output, input, &landmark);
            inputs.advance();
            outputs.advance();
        }
    }
}

/// Gives all items of `a, b :: Class(config)` the class and configuration of the last.
fn spread(items: &mut [Item]) {
    let Some((last, others)) = items.split_last_mut() else { return };
    if others.iter().all(|item| item.bare) {
        for item in others {
            item.declared = last.declared;
            item.config.clone_from(&last.config);
        }
    }
}

/// One side of an arrow: its ports in order.
struct Side<'a> {
    items: &'a [Item],
    side: usize,
    /// The number of ports without those that an expandable list adds.
    least: usize,
    expandable: usize,
    /// Whether each connection takes another port of this side.
    moves: bool,
    /// Ports that the expandable list still adds.
    extra: usize,
    item: usize,
    position: usize,
    port: usize,
}

impl<'a> Side<'a> {
    fn of(items: &'a [Item], side: usize) -> Self {
        let least = items.iter().map(|item| item.ports[side].least()).sum();
        let expandable = items.iter().filter(|item| item.ports[side].expandable).count();
        let mut new =
            Self { items, side, least, expandable, moves: false, extra: 0, item: 0, position: 0, port: 0 };
        new.enter();
        new
    }

    fn enter(&mut self) {
        self.position = 0;
        self.port = self
            .items
            .get(self.item)
            .and_then(|item| item.ports[self.side].list.first())
            .copied()
            .unwrap_or(0);
    }

    fn port(&self) -> Option<(usize, usize)> {
        Some((self.items.get(self.item)?.element, self.port))
    }

    fn advance(&mut self) {
        if !self.moves {
            return;
        }
        let Some(item) = self.items.get(self.item) else { return };
        let ports = &item.ports[self.side];
        self.position += 1;
        if let Some(&port) = ports.list.get(self.position) {
            self.port = port;
        } else if ports.expandable && self.extra > 0 {
            let last = ports.list.len() - 1;
            self.port = ports.list[last] + self.position - last;
            self.extra -= 1;
        } else if ports.is_empty() && self.least == 1 && self.extra > 0 {
            self.port = self.position;
            self.extra -= 1;
        } else {
            self.item += 1;
            self.enter();
        }
    }
}
