//! The services of every gRPC listener: health (`grpc.health.v1`) and reflection (v1 and v1alpha).

use std::convert::Infallible;
use std::fmt;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use tonic::body::Body;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use tonic_reflection::server::Builder;
use tower_service::Service;

use crate::{DESCRIPTORS, SERVICE};

/// The path of the health service.
pub const HEALTH_PATH: &str = "/grpc.health.v1.Health/";
/// The path of the reflection service.
pub const REFLECTION_PATH: &str = "/grpc.reflection.v1.ServerReflection/";
/// The path of its first version, for older clients.
pub const REFLECTION_ALPHA_PATH: &str = "/grpc.reflection.v1alpha.ServerReflection/";

/// Longest request to one of them, in bytes: they contain names.
const MAX_REQUEST_BYTES: usize = 64 * 1024;

type ResponseFuture = BoxFuture<'static, Response<Body>>;
type BoxService = Box<dyn Fn(Request<Body>) -> ResponseFuture + Send + Sync>;

/// The built-in services.
pub struct BuiltinServices {
    health: BoxService,
    reflection: BoxService,
    reflection_alpha: BoxService,
}

impl fmt::Debug for BuiltinServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StandingServices")
    }
}

impl Default for BuiltinServices {
    fn default() -> Self {
        Self::new()
    }
}

impl BuiltinServices {
    /// All services, reported as healthy.
    #[must_use]
    pub fn new() -> Self {
        let health = HealthReporter::new();
        health
            .set_service_status(SERVICE, ServingStatus::Serving)
            .now_or_never()
            .expect("nobody else holds the table yet");
        let health = HealthService::from_health_reporter(health);
        let builder = || {
            Builder::configure()
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(DESCRIPTORS)
        };
        let readable = "the descriptors are compiled with the kernel";
        let v1 = builder().build_v1().expect(readable);
        let v1alpha = builder().build_v1alpha().expect(readable);
        Self {
            health: box_service(
                HealthServer::new(health).max_decoding_message_size(MAX_REQUEST_BYTES),
            ),
            reflection: box_service(v1.max_decoding_message_size(MAX_REQUEST_BYTES)),
            reflection_alpha: box_service(v1alpha.max_decoding_message_size(MAX_REQUEST_BYTES)),
        }
    }

    /// The response to a request for one of them; `None` for all other paths.
    #[must_use]
    pub fn handle(&self, request: Request<Body>) -> Option<ResponseFuture> {
        let path = request.uri().path();
        let answers = match path {
            path if path.starts_with(HEALTH_PATH) => &self.health,
            path if path.starts_with(REFLECTION_PATH) => &self.reflection,
            path if path.starts_with(REFLECTION_ALPHA_PATH) => &self.reflection_alpha,
            _ => return None,
        };
        Some(answers(request))
    }
}

fn box_service<S>(service: S) -> BoxService
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    Box::new(move |request| {
        let answering = service.clone().call(request);
        Box::pin(async move {
            match answering.await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        })
    })
}
