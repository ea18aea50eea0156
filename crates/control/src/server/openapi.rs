//! The description of the API, made from its types and requests.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::RefOr;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi, openapi};

use super::answer::ProblemDocument;
use super::{calls, changes, live, observe, resources, rules, tenants};

/// The control API of a running dataplane.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "NetBricks control API",
        description = "Reads and changes a running dataplane, over a Unix socket or over TCP with a bearer token. \
                       Answers that belong to a generation have it as their `ETag`.",
        license(name = "MIT OR Apache-2.0"),
    ),
    paths(
        resources::status,
        resources::stats,
        tenants::tenants,
        resources::graph,
        resources::ports,
        resources::functions,
        resources::function,
        resources::handlers,
        calls::read,
        calls::write,
        rules::list,
        rules::change,
        rules::replace,
        rules::delete,
        rules::explain,
        rules::test,
        resources::config,
        changes::plan,
        changes::apply,
        changes::confirm,
        changes::rollback,
        resources::history,
        resources::configuration,
        changes::stop,
        changes::suspend,
        changes::resume,
        live::events,
        observe::trace,
        observe::capture,
        resources::metrics,
        get
    ),
    components(schemas(ProblemDocument)),
    modifiers(&Token, &Tags),
    security((), ("token" = [])),
)]
struct Document;

/// Names the way to send a token.
struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
            "Needed over TCP only: a read-only token for GET, the admin token for everything.",
        ));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme.build()));
    }
}

/// Names the `ETag` of answers that have one.
struct Tags;

impl Modify for Tags {
    fn modify(&self, document: &mut openapi::OpenApi) {
        for (path, item) in &mut document.paths.paths {
            if ["/v1/events", "/v1/openapi.json"].contains(&path.as_str()) {
                continue;
            }
            let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                if let Some(RefOr::T(answer)) = operation.responses.responses.get_mut("200") {
                    let tag =
                        HeaderBuilder::new().description(Some("The generation that the answer belongs to."));
                    answer.headers.insert("ETag".into(), tag.build());
                    answer.description = "It is done.".into();
                }
            }
        }
    }
}

/// The description of the API (`OpenAPI` 3.1) as JSON with a line for each member.
pub fn document() -> String {
    // Types that derive their form always have one.
    let mut text = Document::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// This description.
#[utoipa::path(
    get, path = "/v1/openapi.json", tag = "state", operation_id = "openapi",
    responses((status = 200, body = Object)),
)]
pub(super) async fn get() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document()).into_response()
}
