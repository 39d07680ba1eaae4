//! What can an operator say about the platforms that write to Kafka?

use std::path::PathBuf;

use anamnesis_pipeline::caller::Caller;
use serde::{Deserialize, Serialize};

/// Whoever can write to the topic is one caller: Kafka's own access control decides who that is.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct InboxConfig {
    /// Tenants whose owners may be written for; `["*"]` for all.
    pub tenants: Vec<String>,
    /// Tenant of owners that a shape gives without one; without it, the first of `tenants`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Address of a schema registry with Confluent's API, down to the part before `/schemas`. Without
    /// it, Avro in Confluent's frame is turned down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,
    /// Environment variable that holds `user:password` for the registry, or a whole value of the
    /// `authorization` header (`Bearer …`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_auth_env: Option<String>,
    /// Certificates (PEM) that the registry is trusted by, instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_ca_file: Option<PathBuf>,
}

impl InboxConfig {
    /// The caller that the records of the topic come from.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub fn caller(&self) -> Result<Caller, String> {
        let covers_all = self.tenants.iter().any(|tenant| tenant == "*");
        let first = self.tenants.iter().find(|tenant| *tenant != "*");
        let Some(tenant) = self.tenant.as_ref().or(first) else {
            return Err(if covers_all {
                "inbox: say which tenant owners without one belong to (inbox.tenant)".to_owned()
            } else {
                "inbox: name the tenants that platforms may write for (inbox.tenants)".to_owned()
            });
        };
        let tenants = (!covers_all).then(|| self.tenants.clone());
        let caller = Caller::platform("inbox", tenants, tenant);
        if !caller.covers(tenant) {
            return Err(format!(
                "inbox: the tenant {tenant} is not among inbox.tenants"
            ));
        }
        if self.registry.is_none() && self.registry_auth_env.is_some() {
            return Err("inbox: registry_auth_env without a registry".to_owned());
        }
        Ok(caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<(&str, &[&str], &[&str]), &str>) {
        let config: InboxConfig = serde_json::from_str(text).unwrap();
        let caller = config.caller();
        match expected {
            Err(words) => {
                let told = caller.unwrap_err();
                assert!(told.contains(words), "{told}");
            }
            Ok((tenant, covered, not_covered)) => {
                let caller = caller.unwrap();
                assert_eq!(caller.default_tenant, tenant);
                assert!(covered.iter().all(|tenant| caller.covers(tenant)));
                assert!(!not_covered.iter().any(|tenant| caller.covers(tenant)));
            }
        }
    }

    #[test]
    fn the_caller_covers_what_is_named_and_nothing_else() {
        check(
            r#"{"tenants": ["h1", "h2"]}"#,
            Ok(("h1", &["h1", "h2"], &["h3"])),
        );
        check(
            r#"{"tenants": ["h1", "h2"], "tenant": "h2"}"#,
            Ok(("h2", &["h1"], &["*"])),
        );
        check(
            r#"{"tenants": ["*"], "tenant": "h9"}"#,
            Ok(("h9", &["h1"], &[])),
        );
        check(r#"{"tenants": ["*"]}"#, Err("inbox.tenant"));
        check(r#"{"tenants": []}"#, Err("inbox.tenants"));
        check(r#"{"tenants": ["h1"], "tenant": "h2"}"#, Err("not among"));
        check(
            r#"{"tenants": ["h1"], "registry_auth_env": "X"}"#,
            Err("without a registry"),
        );
        assert!(serde_json::from_str::<InboxConfig>(r#"{"tenants": [], "tenents": 1}"#).is_err());
    }
}
