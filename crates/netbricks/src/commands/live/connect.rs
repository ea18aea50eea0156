//! The connection to a running dataplane: its address and token, and the client as an [`Api`].

use netbricks_control::api::{
    Answers, Applied, ApplyOptions, ChangeOptions, Event, Function, Graph, HistoryEntry, Plan, Port, Problem,
    Source, Stats, Status, TenantStats,
};
use netbricks_control::client::{Address, Client, read_token};

use super::{Api, CaptureList, Connection, EventList, Failure, TraceList};

/// The environment variable with the address.
const SOCKET: &str = "NETBRICKS_SOCKET";

/// The client of the dataplane that a command line names, or the environment, or else of the only one here.
pub(crate) fn connect(connection: &Connection) -> Result<Client, Failure> {
    let client = |connection: &Connection| -> Result<Client, Problem> {
        let Connection { socket, token_file } = connection;
        let named = socket.clone().or_else(|| std::env::var(SOCKET).ok().filter(|name| !name.is_empty()));
        let token = token_file.as_deref().map(read_token).transpose()?;
        let Some(named) = named else { return Client::find() };
        let address = match (named.parse::<Address>()?, token) {
            (Address::Tcp { address, .. }, Some(token)) => Address::Tcp { address, token: Some(token) },
            (address, _) => address,
        };
        Ok(Client::new(address))
    };
    client(connection).map_err(|problem: Problem| match problem.help {
        None => Failure::Failed(problem.detail),
        Some(help) => Failure::Failed(format!("{}; {help}", problem.detail)),
    })
}

impl Api for Client {
    fn status(&self) -> Result<Status, Problem> {
        self.status()
    }
    fn stats(&self) -> Result<Stats, Problem> {
        self.stats()
    }
    fn tenants(&self) -> Result<Vec<TenantStats>, Problem> {
        self.tenants()
    }
    fn graph(&self) -> Result<Graph, Problem> {
        self.graph()
    }
    fn ports(&self) -> Result<Vec<Port>, Problem> {
        self.ports()
    }
    fn functions(&self) -> Result<Vec<Function>, Problem> {
        self.functions()
    }
    fn read(
        &self,
        function: &str,
        handler: &str,
        argument: &str,
        worker: Option<usize>,
    ) -> Result<Answers, Problem> {
        self.read(function, handler, argument, worker)
    }
    fn write(
        &self,
        function: &str,
        handler: &str,
        value: &str,
        worker: Option<usize>,
    ) -> Result<Answers, Problem> {
        self.write(function, handler, value, worker)
    }
    fn config(&self) -> Result<Source, Problem> {
        self.config()
    }
    fn configuration(&self, number: u64) -> Result<Source, Problem> {
        self.configuration(number)
    }
    fn plan(&self, source: &Source) -> Result<Plan, Problem> {
        self.plan(source)
    }
    fn apply(
        &self,
        source: &Source,
        options: &ApplyOptions,
        expected: Option<u64>,
    ) -> Result<Applied, Problem> {
        self.apply(source, options, expected)
    }
    fn with_conditions(&self, change: ChangeOptions) -> Box<dyn Api> {
        Box::new(self.with_conditions(change))
    }
    fn confirm(&self) -> Result<Status, Problem> {
        self.confirm()
    }
    fn rollback(&self, to: Option<u64>) -> Result<Applied, Problem> {
        self.rollback(to)
    }
    fn history(&self) -> Result<Vec<HistoryEntry>, Problem> {
        self.history()
    }
    fn suspend(&self) -> Result<Status, Problem> {
        self.suspend()
    }
    fn resume(&self) -> Result<Status, Problem> {
        self.resume()
    }
    fn stop(&self) -> Result<Status, Problem> {
        self.stop()
    }
    fn events_so_far(&self, from: u64) -> Result<Vec<Event>, Problem> {
        self.events_so_far(from)
    }
    fn events(&self, from: u64) -> Result<EventList, Problem> {
        Ok(Box::new(self.events(Some(from))?))
    }
    fn trace(&self, filter: &str, at: Option<&str>, count: Option<u64>) -> Result<TraceList, Problem> {
        Ok(Box::new(self.trace(filter, at, count)?))
    }
    fn capture(
        &self,
        filter: &str,
        at: Option<&str>,
        count: Option<u64>,
        snaplen: Option<usize>,
    ) -> Result<CaptureList, Problem> {
        let pieces = self.capture(filter, at, count, snaplen)?;
        Ok(Box::new(pieces.map(|piece| piece.map(|piece| piece.to_vec()))))
    }
}
