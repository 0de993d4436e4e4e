//! Plays a list of HTTP steps (`tests/cases/*/steps.json`) against an endpoint.

use super::http::{Answer, Api};
use reqwest::{Method, Url};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Plays the steps of `case` and gives the failures, one line each. `$ENDPOINT` and `$TOKEN` stand for the address
/// and the token of `api`; steps that are about tokens are left out without one.
pub fn play(case: &Path, api: &Api, endpoint: &str) -> Vec<String> {
    let text = std::fs::read_to_string(case.join("steps.json")).expect("steps.json");
    let steps: Vec<Value> = serde_json::from_str(&text).expect("a list of steps");
    let mut names = BTreeMap::from([("ENDPOINT".to_owned(), api.url(endpoint).to_string())]);
    names.insert("TOKEN".to_owned(), api.token().unwrap_or_default().to_owned());
    let mut failures = Vec::new();
    for step in &steps {
        let needs_auth = step["only_if_auth"].as_bool().unwrap_or(false);
        let needs_name = step["only_if"].as_str();
        if (needs_auth && api.token().is_none()) || needs_name.is_some_and(|name| !names.contains_key(name)) {
            continue;
        }
        let answer = ask(case, api, step, &names);
        failures.extend(judge(step, &answer).into_iter().map(|why| format!("{}: {why}", step["id"])));
        for (name, header) in step["save"].as_object().into_iter().flatten() {
            let header = header.as_str().expect("a header's name");
            let value = match header {
                "location" => answer.location().map(String::from),
                _ => answer.header(header),
            };
            if let Some(value) = value {
                names.insert(name.clone(), value);
            }
        }
    }
    failures
}

fn fill(text: &str, names: &BTreeMap<String, String>) -> String {
    // Longest first: no name is cut by another that begins it.
    let mut sorted: Vec<_> = names.iter().collect();
    sorted.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    sorted.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${name}"), value))
}

fn ask(case: &Path, api: &Api, step: &Value, names: &BTreeMap<String, String>) -> Answer {
    let method = Method::from_bytes(step["method"].as_str().expect("method").as_bytes()).expect("a method");
    let url = Url::parse(&fill(step["url"].as_str().expect("url"), names)).expect("an address");
    let mut request = api.request(method, url);
    let mut authorized = step["no_auth"].as_bool().unwrap_or(false);
    for (name, value) in step["headers"].as_object().into_iter().flatten() {
        authorized |= name.eq_ignore_ascii_case("authorization");
        request = request.header(name, fill(value.as_str().expect("a header"), names));
    }
    if let (false, Some(token)) = (authorized, api.token()) {
        request = request.bearer_auth(token);
    }
    if let Some(file) = step["body"].as_str() {
        request = request.body(std::fs::read(case.join(file)).expect("a body"));
    }
    Api::new(api.url("/").as_str()).send(request)
}

fn judge(step: &Value, answer: &Answer) -> Vec<String> {
    let mut wrong = Vec::new();
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let allowed: Vec<u64> = step["status"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    if !allowed.contains(&answer.status.into()) {
        wrong.push(format!("status {} is none of {allowed:?}: {}", answer.status, answer.body));
    }
    for name in texts(&step["header_present"]) {
        if answer.header(&name).is_none() {
            wrong.push(format!("no {name}"));
        }
    }
    for name in texts(&step["header_absent"]) {
        if answer.header(&name).is_some() {
            wrong.push(format!("{name} should not be there"));
        }
    }
    for (name, words) in step["header_contains"].as_object().into_iter().flatten() {
        let have = answer.header(name).unwrap_or_default().to_ascii_lowercase();
        for word in texts(words) {
            if have != "*" && !have.contains(&word.to_ascii_lowercase()) {
                wrong.push(format!("{name}: {have:?} lacks {word}"));
            }
        }
    }
    wrong
}
