//! What the proxy answers itself: the model list, health, readiness, metrics. At once, whatever the backends do.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use switchback_policies::facts::BackendState;

use crate::answer::body::{Body, full};
use crate::app::{App, Live};
use crate::error::ApiError;
use crate::models;

/// The process runs.
pub(crate) async fn health(State(live): State<Arc<Live>>) -> Response<Body> {
    let app = live.app();
    answer(StatusCode::OK, &told(&app, "ok"))
}

/// At least one backend can be asked.
pub(crate) async fn ready(State(live): State<Arc<Live>>) -> Response<Body> {
    let app = live.app();
    let ready = app.fleet.all().iter().any(|backend| backend.state() == BackendState::Up);
    let (status, word) =
        if ready { (StatusCode::OK, "ready") } else { (StatusCode::SERVICE_UNAVAILABLE, "no backend is up") };
    answer(status, &told(&app, word))
}

/// Prometheus' text format.
pub(crate) async fn metrics(State(live): State<Arc<Live>>) -> Response<Body> {
    let app = live.app();
    let mut response = Response::new(full(app.metrics.text(&app.fleet, app.admission.waiting()).into()));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// All names that may be asked for.
pub(crate) async fn models(State(live): State<Arc<Live>>) -> Response<Body> {
    let app = live.app();
    let cards = models::list(&app);
    answer(StatusCode::OK, &json!({ "object": "list", "data": cards }))
}

/// One of them.
pub(crate) async fn model(State(live): State<Arc<Live>>, Path(name): Path<String>) -> Response<Body> {
    let app = live.app();
    let known = models::names(&app);
    match models::card(&app, &name).filter(|_| known.contains(&name)) {
        Some(card) => answer(StatusCode::OK, &card),
        None => ApiError::model_not_found(&name, &known, None).response(None),
    }
}

/// How all is, and what is wrong with the loader.
fn told(app: &App, status: &str) -> Value {
    let state = |backend: &Arc<crate::backend::Backend>| {
        let state = backend.state().to_string();
        let ill = backend.needs_restart().map(str::to_owned);
        let ill = ill.or_else(|| backend.collapsed().map(|collapse| collapse.to_string()));
        let words = ill.map_or_else(|| state.clone(), |why| format!("{state}, needs a restart: {why}"));
        (backend.name().to_owned(), words.into())
    };
    let backends = Value::Object(app.fleet.all().iter().map(state).collect());
    let mut told = json!({ "status": status, "backends": backends });
    if let Some(loader) = &app.loader {
        told["loader"] = loader.last_trouble().map_or_else(|| "ok".to_owned(), |trouble| trouble.said).into();
    }
    told
}

fn answer(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(full(value.to_string().into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
