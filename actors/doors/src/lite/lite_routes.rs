//! The routing table for callers without multi-round requests: the input that a stateless server needs is
//! requested by the kernel, so that every callback suspends its call.

use std::sync::Arc;

use bytes::Bytes;
use mgp_callers::agent::Agent;
use mgp_callers::request::{AnswerFuture, Caller, Request, Routes};
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
    fn answer(&self, request: Request) -> AnswerFuture {
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
        let exchange = request.call.clone();
        let answering = self.0.answer(request);
        Box::pin(async move {
            let first = answering.await;
            round.run_rounds(&exchange, first).await
        })
    }

    fn handle_notification(&self, caller: &Arc<Caller>, method: &str, params: Option<&str>) {
        self.0.handle_notification(caller, method, params);
    }

    fn find_tool(
        &self,
        view: &CatalogView,
        name: &str,
        who: &Principal,
    ) -> Option<Arc<CatalogTool>> {
        self.0.find_tool(view, name, who)
    }

    fn all_tools(&self, caller: Arc<Caller>) -> AnswerFuture<Result<Vec<Bytes>, Refusal>> {
        self.0.all_tools(caller)
    }

    fn initialize(&self, caller: Arc<Caller>) -> AnswerFuture {
        self.0.initialize(caller)
    }

    fn is_view_known(&self, view: &CatalogView, who: &Principal) -> bool {
        self.0.is_view_known(view, who)
    }

    fn foreign_closure_reason(&self) -> Option<String> {
        self.0.foreign_closure_reason()
    }

    fn recheck(&self, caller: &Caller, method: &str, params: &str) -> Result<(), Refusal> {
        self.0.recheck(caller, method, params)
    }

    fn handle_disconnect(&self, agent: &Agent) {
        self.0.handle_disconnect(agent);
    }
}
