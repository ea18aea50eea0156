//! Control tasks of the library's functions that need sockets, which the functions themselves may not open.

mod bras;
mod flow_export;
mod health;
mod kernel_routes;
mod routes;

use netbricks_core::Registry;
use netbricks_functions::bras::BrasConfig;
use netbricks_functions::load_balancer::LoadBalancerConfig;
use netbricks_functions::monitor::MonitorConfig;
use netbricks_functions::router::RouterConfig;

/// Gives functions their control tasks.
pub(crate) fn register(registry: &mut Registry) {
    registry.control_task("bras", |config: &BrasConfig| {
        // The secret was read when the settings were checked.
        let secret = config.radius_secret().ok().flatten()?;
        Some(Box::new(bras::RadiusClient::new(config, secret)))
    });
    registry.control_task("monitor", |config: &MonitorConfig| {
        Some(Box::new(flow_export::FlowExport::new(config.collector?, config)))
    });
    registry.control_task("load-balancer", |config: &LoadBalancerConfig| {
        Some(Box::new(health::HealthChecks::new(config.health?, config)))
    });
    registry.control_task("router", |config: &RouterConfig| {
        let table = config.kernel?;
        Some(Box::new(kernel_routes::KernelRoutes::new(table.0)))
    });
}
