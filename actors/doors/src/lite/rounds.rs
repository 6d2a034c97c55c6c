//! The table of all methods, for callers that know no rounds: what a modern server needs before it goes on is asked in
//! the name of the kernel, so that every question suspends its call.

use std::sync::Arc;

use bytes::Bytes;
use mgp_callers::agent::Agent;
use mgp_callers::request::{Answering, Caller, Request, Routes};
use mgp_callers::tasks::NextRound;
use mgp_engine::policy::access::Principal;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_protocol::refusal::Refusal;

#[derive(Debug)]
pub(super) struct LiteRoutes(Arc<dyn Routes>);

impl LiteRoutes {
    pub(super) fn new(all: Arc<dyn Routes>) -> Self {
        Self(all)
    }
}

impl Routes for LiteRoutes {
    fn answer(&self, request: Request) -> Answering {
        if request.method != "tools/call" {
            return self.0.answer(request);
        }
        let round = NextRound {
            routes: self.0.clone(),
            caller: request.caller.clone(),
            method: request.method.clone(),
            params: request.params.clone(),
            trace: request.trace.clone(),
        };
        let exchange = request.exchange.clone();
        let answering = self.0.answer(request);
        Box::pin(async move {
            let first = answering.await;
            round.to_its_end(&exchange, first).await
        })
    }

    fn note(&self, caller: &Arc<Caller>, method: &str, params: Option<&str>) {
        self.0.note(caller, method, params);
    }

    fn tool(&self, view: &CatalogView, name: &str, who: &Principal) -> Option<Arc<CatalogTool>> {
        self.0.tool(view, name, who)
    }

    fn all_tools(&self, caller: Arc<Caller>) -> Answering<Result<Vec<Bytes>, Refusal>> {
        self.0.all_tools(caller)
    }

    fn welcome(&self, caller: Arc<Caller>) -> Answering {
        self.0.welcome(caller)
    }

    fn knows(&self, view: &CatalogView, who: &Principal) -> bool {
        self.0.knows(view, who)
    }

    fn lapse(&self) -> Option<String> {
        self.0.lapse()
    }

    fn still(&self, caller: &Caller, method: &str, params: &str) -> Result<(), Refusal> {
        self.0.still(caller, method, params)
    }

    fn farewell(&self, agent: &Agent) {
        self.0.farewell(agent);
    }
}
