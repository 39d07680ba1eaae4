//! What is in a request's query string? Unknown and repeated parameters are refused by name.

use std::collections::BTreeMap;

use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::owner::Owner;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::caller::parse_owner;
use anamnesis_pipeline::http;
use anamnesis_pipeline::problem::Problem;
use axum::http::Uri;

use crate::request;

pub(super) struct Params(BTreeMap<String, String>);

impl Params {
    /// # Errors
    /// 400 `unknown_parameter`, `repeated_parameter` or `invalid_parameter`.
    pub(super) fn read(uri: &Uri, known: &[&str]) -> Result<Self, Problem> {
        http::parameters(uri, known).map(Self)
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    pub(super) fn owner(&self) -> Result<Owner, Problem> {
        parse_owner(self.get("owner"), "owner")
    }

    pub(super) fn instant(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        request::instant(self.get(name), name)
    }

    /// A whole number, at most `max`.
    pub(super) fn number(&self, name: &str, max: u64) -> Result<Option<u64>, Problem> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        match text.parse::<u64>() {
            Ok(number) if number <= max => Ok(Some(number)),
            Ok(_) | Err(_) => {
                let detail = format!("{name} must be a whole number up to {max}");
                Err(Problem::bad_request("invalid_parameter", detail).at(name))
            }
        }
    }

    /// Codes separated by commas.
    pub(super) fn kinds(&self) -> Result<Option<Vec<Kind>>, Problem> {
        let Some(text) = self.get("kind") else {
            return Ok(None);
        };
        text.split(',')
            .map(|code| request::kind(code.trim(), "kind"))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// Codes separated by commas.
    pub(super) fn statuses(&self) -> Result<Option<Vec<Status>>, Problem> {
        let Some(text) = self.get("status") else {
            return Ok(None);
        };
        let mut statuses = Vec::new();
        for code in text.split(',') {
            let Some(status) = Status::from_code(code.trim()) else {
                let known: Vec<&str> = Status::ALL.iter().map(|status| status.code()).collect();
                let detail = format!("not a status; there are {}", known.join(", "));
                return Err(Problem::bad_request("unknown_status", detail).at("status"));
            };
            statuses.push(status);
        }
        Ok(Some(statuses))
    }
}
