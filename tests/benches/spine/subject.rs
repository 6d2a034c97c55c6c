//! Something that calls go through, and what it took for them.

use std::io;
use std::time::Duration;

use mgp_tests::load::{Bounds, Cell, HttpLoad, PipeLoad, Request, Run, Usage};

/// A way to the upstream.
pub(crate) struct Subject {
    /// What it is called in the tables.
    pub(crate) name: String,
    /// How it is reached.
    pub(crate) way: Way,
    /// The processes of the gateway; none when there is none.
    pub(crate) gateway: Vec<u32>,
    /// The process of the upstream.
    pub(crate) upstream: u32,
}

/// How calls get there.
pub(crate) enum Way {
    /// Over HTTP, one connection a client, and one session where it speaks in sessions.
    Http(String),
    /// The same, as the agent with this token.
    HttpAs(String, String),
    /// On one pipe, as many calls in flight as there are clients.
    Pipe(Box<PipeLoad>),
    /// Not at all: why.
    Not(String),
}

/// A measured run.
pub(crate) struct Measured {
    /// The calls.
    pub(crate) run: Run,
    /// CPU time of the gateway, user and system.
    pub(crate) gateway: Option<Duration>,
    /// CPU time of the upstream.
    upstream: Duration,
    /// CPU time of the load generator.
    own: Duration,
}

impl Subject {
    /// Warms the way up and measures it.
    pub(crate) async fn measure(
        &mut self,
        request: &Request,
        clients: usize,
        bounds: Bounds,
    ) -> io::Result<Measured> {
        match &mut self.way {
            Way::Not(why) => Err(io::Error::other(why.clone())),
            Way::Http(url) => {
                let load = HttpLoad::open(url, clients, request.talk()).await?;
                self.measure_http(load, request, bounds).await
            }
            Way::HttpAs(url, token) => {
                let load = HttpLoad::open_as(url, Some(token), clients, request.talk()).await?;
                self.measure_http(load, request, bounds).await
            }
            Way::Pipe(load) => {
                load.run(request, clients, bounds.warm_up()).await?;
                let before = taken(&[], self.upstream);
                let run = load.run(request, clients, bounds).await?;
                let after = taken(&[], self.upstream);
                Ok(Measured::between(before, after, run, false))
            }
        }
    }

    async fn measure_http(
        &self,
        mut load: HttpLoad,
        request: &Request,
        bounds: Bounds,
    ) -> io::Result<Measured> {
        load.run(request, bounds.warm_up()).await?;
        let before = taken(&self.gateway, self.upstream);
        let run = load.run(request, bounds).await?;
        let after = taken(&self.gateway, self.upstream);
        let has_gateway = !self.gateway.is_empty();
        Ok(Measured::between(before, after, run, has_gateway))
    }
}

/// CPU time of gateway, upstream and load generator so far.
fn taken(gateway: &[u32], upstream: u32) -> [Duration; 3] {
    [Usage::of(gateway), Usage::of(&[upstream]), Usage::own()].map(|usage| usage.cpu)
}

impl Measured {
    /// CPU time of the gateway for each call, in microseconds; of none, nothing.
    pub(crate) fn gateway_per_call(&self) -> f64 {
        self.gateway.map_or(0.0, |cpu| self.run.per_call(cpu))
    }

    fn between(before: [Duration; 3], after: [Duration; 3], run: Run, has_gateway: bool) -> Self {
        let [gateway, upstream, own] = [0, 1, 2].map(|at| after[at].saturating_sub(before[at]));
        Self {
            run,
            gateway: has_gateway.then_some(gateway),
            upstream,
            own,
        }
    }

    /// The columns from the gateway's CPU on, with one ratio of the rate to each rate in `direct`.
    pub(crate) fn cells(&self, direct: &[Option<f64>]) -> Vec<Cell> {
        let run = &self.run;
        let gateway = self.gateway.map(|cpu| run.per_call(cpu));
        let number = |value: Option<f64>, decimals| {
            value.map_or(Cell::Nothing, |value| Cell::Number(value, decimals))
        };
        let mut cells = vec![number(gateway, 1), number(Some(run.rate()), 0)];
        let ratios = direct
            .iter()
            .map(|direct| direct.map(|direct| run.rate() / direct));
        cells.extend(ratios.map(|ratio| number(ratio, 2)));
        cells.extend([
            number(Some(run.latencies.percentile(50.0)), 0),
            number(Some(run.latencies.percentile(99.0)), 0),
            number(Some(run.per_call(self.upstream)), 1),
            number(Some(run.per_call(self.own)), 1),
            number(Some(run.latencies.calls() as f64), 0),
        ]);
        cells
    }
}

/// As many columns for what could not be measured: why, in the first of them.
pub(crate) fn unmeasured(why: &io::Error, ratios: usize) -> Vec<Cell> {
    let mut cells = vec![Cell::Nothing; 7 + ratios];
    cells[0] = why.to_string().into();
    cells
}
