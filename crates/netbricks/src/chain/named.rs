//! Functions whose inputs are named after ports: a chain from a port takes the input of that name.

use super::{Network, Shape};
use crate::config::{Origin, Plan};
use crate::diagnostic::{Diagnostic, Diagnostics};

impl Network {
    /// Gives each use of such a function the input of its chain's port.
    pub(super) fn name_inputs(&mut self, plan: &Plan<'_>, shapes: &[Shape], diagnostics: &mut Diagnostics) {
        for (function, shape) in shapes.iter().enumerate().filter(|(_, shape)| !shape.ports.is_empty()) {
            let name = &plan.functions[function].name;
            let known = shape.ports.iter().map(String::as_str);
            let before = diagnostics.has_errors();
            for number in 0..self.uses.len() {
                if self.uses[number].function != function {
                    continue;
                }
                let chain = &plan.chains[self.uses[number].chain];
                let to = chain.to.map(|to| plan.ports[to].name.as_str()).unwrap_or_default();
                let port = match chain.origin {
                    Origin::Port(port) => Some(plan.ports[port].name.as_str()),
                    // A tenant's packets of a port that it shares: they go back by that port.
                    Origin::Output { .. } => chain.tenant.map(|_| to),
                };
                let Some(port) = port else {
                    diagnostics.push(
                        Diagnostic::error(format!("`{name}` tells its inputs apart by ports"))
                            .at(chain.from_place.clone(), "this chain begins at a function's way out"),
                    );
                    continue;
                };
                let Some(input) = shape.ports.iter().position(|known| known == port) else {
                    diagnostics.push(Diagnostic::error(format!("`{name}` has no interface `{port}`")).meant(
                        chain.from_place.clone(),
                        port,
                        known.clone(),
                    ));
                    continue;
                };
                if to != port {
                    diagnostics.push(
                        Diagnostic::error(format!("what `{name}` sends by its interface `{port}` would leave by `{to}`"))
                            .at(chain.to_place.clone(), format!("write `to = \"{port}\"`"))
                            .help(format!("`{name}` itself chooses the interface; each chain with it begins and ends at one port")),
                    );
                    continue;
                }
                self.uses[number].input = Some(input);
            }
            let is_used = |input: usize| {
                self.uses.iter().any(|one| one.function == function && one.input == Some(input))
            };
            let unused = (0..shape.ports.len()).filter(|input| !is_used(*input));
            let unused: Vec<String> = unused.map(|input| format!("`{}`", shape.ports[input])).collect();
            if before == diagnostics.has_errors() && !unused.is_empty() {
                let port = shape.ports.iter().enumerate().find(|(input, _)| !is_used(*input));
                let port = port.map_or("", |(_, port)| port.as_str());
                diagnostics.push(
                    Diagnostic::error(format!("no chain brings `{name}` the packets of {}", unused.join(", ")))
                        .at(plan.functions[function].place.clone(), "it has interfaces there")
                        .help(format!(
                            "add `[[chain]]` with `from = \"{port}\"`, `through = [\"{name}\"]` and `to = \"{port}\"`"
                        )),
                );
            }
        }
    }
}
