//! Who calls, and which owners that caller may touch. An [`OwnerScope`] for a request comes from here
//! and from nowhere else.

use anamnesis_domain::ids::IdKey;
use anamnesis_domain::owner::{Owner, OwnerScope, Scope};
use axum::http::{HeaderMap, header};
use serde::{Deserialize, Serialize};

use crate::problem::Problem;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallerRole {
    /// Reads and writes memories of patients.
    Assistant,
    /// Writes to `org` and `project` owners.
    Curator,
    /// Decides reviews, erasures, restrictions.
    Reviewer,
    /// Audit reads.
    Auditor,
    /// Everything, and the operations of the service.
    Operator,
}

/// One configured bearer token.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    /// The caller's name, as it appears in receipts and commands.
    pub name: String,
    /// BLAKE3 hash of the token in hexadecimal, so that the configuration holds no secret; or
    /// `token_env`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_blake3: Option<String>,
    /// Environment variable that holds the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    /// Tenants that the token covers; `["*"]` for all.
    pub tenants: Vec<String>,
    pub roles: Vec<CallerRole>,
}

/// A caller whose token was checked, or the local user of an open loopback server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    pub name: String,
    /// `None`: every tenant.
    tenants: Option<Vec<String>>,
    roles: Vec<CallerRole>,
    /// The tenant of owners that a shape gives without one.
    pub default_tenant: String,
}

impl Caller {
    /// The operator on this machine: loopback without tokens, or the command line.
    pub fn local(default_tenant: &str) -> Self {
        Self {
            name: "local".to_owned(),
            tenants: None,
            roles: vec![CallerRole::Operator],
            default_tenant: default_tenant.to_owned(),
        }
    }

    /// A platform that is configured by name and writes what patients and assistants said. Without
    /// tenants it covers none; `None` covers all.
    pub fn platform(name: &str, tenants: Option<Vec<String>>, default_tenant: &str) -> Self {
        Self {
            name: name.to_owned(),
            tenants,
            roles: vec![CallerRole::Assistant],
            default_tenant: default_tenant.to_owned(),
        }
    }

    pub fn has(&self, role: CallerRole) -> bool {
        self.roles.contains(&role) || self.roles.contains(&CallerRole::Operator)
    }

    /// # Errors
    /// 403 `role_required` when the caller has not this role.
    pub fn require(&self, role: CallerRole) -> Result<(), Problem> {
        if self.has(role) {
            return Ok(());
        }
        let needed = serde_json::to_value(role).unwrap_or_default();
        Err(Problem::new(
            403,
            "role_required",
            format!("this call needs the role {needed}"),
        ))
    }

    pub fn covers(&self, tenant: &str) -> bool {
        self.tenants
            .as_ref()
            .is_none_or(|tenants| tenants.iter().any(|covered| covered == tenant))
    }

    /// Whether no tenant is closed to the caller.
    pub fn covers_all(&self) -> bool {
        self.tenants.is_none()
    }

    /// The right to touch `owner`, checked against the token.
    ///
    /// # Errors
    /// 403 `tenant_not_covered`. The answer does not tell whether the owner exists.
    pub fn scope(&self, owner: &Owner, ids: &IdKey) -> Result<OwnerScope, Problem> {
        if !self.covers(owner.tenant()) {
            return Err(Problem::new(
                403,
                "tenant_not_covered",
                "the caller's token does not cover the tenant of this owner",
            )
            .at("owner"));
        }
        Ok(OwnerScope::of_verified_caller(ids.owner(owner)))
    }

    /// As [`Caller::scope`], for a write: `org` and `project` need a role.
    ///
    /// # Errors
    /// 403 `tenant_not_covered` or `role_required`.
    pub fn write_scope(&self, owner: &Owner, ids: &IdKey) -> Result<OwnerScope, Problem> {
        match owner.scope() {
            Scope::Patient => self.require(CallerRole::Assistant)?,
            Scope::Org | Scope::Project => self.require(CallerRole::Curator)?,
        }
        self.scope(owner, ids)
    }
}

/// Reads an owner from a request field.
///
/// # Errors
/// 400 `missing_field` or `invalid_owner`.
pub fn parse_owner(text: Option<&str>, field: &str) -> Result<Owner, Problem> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Err(Problem::bad_request(
            "missing_field",
            "owner is required: <tenant>/<scope>/<id>",
        )
        .at(field));
    };
    text.parse()
        .map_err(|error| Problem::bad_request("invalid_owner", format!("{error}")).at(field))
}

/// Every configured caller. Without tokens the server is open, which is allowed on loopback only.
#[derive(Clone)]
pub struct Callers {
    tokens: Vec<([u8; 32], Caller)>,
    open: Option<Caller>,
}

/// Response header that says that no token was asked for.
pub const OPEN_HEADER: &str = "x-anamnesis-open";

impl Callers {
    pub fn open_on_loopback(default_tenant: &str) -> Self {
        Self {
            tokens: Vec::new(),
            open: Some(Caller::local(default_tenant)),
        }
    }

    /// # Errors
    /// A sentence that names the token entry and what is wrong with it.
    pub fn from_config(tokens: &[TokenConfig], default_tenant: &str) -> Result<Self, String> {
        let mut known = Vec::new();
        for config in tokens {
            let hash = match (&config.token_blake3, &config.token_env) {
                (Some(hex), None) => {
                    anamnesis_domain::ids::Hash::from_hex(hex)
                        .ok_or_else(|| {
                            format!(
                                "token {}: token_blake3 is not 64 hexadecimal digits",
                                config.name
                            )
                        })?
                        .0
                }
                (None, Some(variable)) => {
                    let token = std::env::var(variable)
                        .ok()
                        .filter(|token| !token.is_empty());
                    let token = token.ok_or_else(|| {
                        format!(
                            "token {}: the environment variable {variable} is not set",
                            config.name
                        )
                    })?;
                    *blake3::hash(token.as_bytes()).as_bytes()
                }
                (None, None) | (Some(_), Some(_)) => {
                    return Err(format!(
                        "token {}: give token_blake3 or token_env",
                        config.name
                    ));
                }
            };
            let all = config.tenants.iter().any(|tenant| tenant == "*");
            known.push((
                hash,
                Caller {
                    name: config.name.clone(),
                    tenants: (!all).then(|| config.tenants.clone()),
                    roles: config.roles.clone(),
                    default_tenant: config
                        .tenants
                        .first()
                        .filter(|tenant| *tenant != "*")
                        .cloned()
                        .unwrap_or_else(|| default_tenant.to_owned()),
                },
            ));
        }
        Ok(Self {
            tokens: known,
            open: None,
        })
    }

    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The caller behind a request's `authorization: Bearer …` header.
    ///
    /// # Errors
    /// 401 `token_required` or `token_unknown`.
    pub fn resolve(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        if let Some(open) = &self.open {
            return Ok(open.clone());
        }
        let value = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let Some(token) = value.and_then(|value| value.strip_prefix("Bearer ")) else {
            return Err(Problem::new(
                401,
                "token_required",
                "send authorization: Bearer <token>",
            ));
        };
        let hash = blake3::hash(token.trim().as_bytes());
        // blake3::Hash compares in constant time.
        let found = self
            .tokens
            .iter()
            .find(|(known, _)| hash == blake3::Hash::from_bytes(*known));
        found
            .map(|(_, caller)| caller.clone())
            .ok_or_else(|| Problem::new(401, "token_unknown", "the bearer token is not known"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(tenant: &str, role: CallerRole) -> TokenConfig {
        TokenConfig {
            name: "triage".to_owned(),
            token_blake3: Some(blake3::hash(b"secret").to_hex().to_string()),
            token_env: None,
            tenants: vec![tenant.to_owned()],
            roles: vec![role],
        }
    }

    fn bearer(token: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::AUTHORIZATION,
            format!("Bearer {token}").parse().unwrap(),
        );
        headers
    }

    #[test]
    fn a_token_covers_its_tenant_only() {
        let callers = Callers::from_config(&[config("h1", CallerRole::Assistant)], "x").unwrap();
        let caller = callers.resolve(&bearer("secret")).unwrap();
        let ids = IdKey::from_bytes([1; 32]);
        assert!(caller.write_scope(&"h1/p1".parse().unwrap(), &ids).is_ok());
        let foreign = caller.scope(&"h2/p9".parse().unwrap(), &ids).unwrap_err();
        assert_eq!(
            (foreign.status, foreign.code.as_str()),
            (403, "tenant_not_covered")
        );
        let org = caller
            .write_scope(&"h1/org/x".parse().unwrap(), &ids)
            .unwrap_err();
        assert_eq!(org.code, "role_required");
    }

    #[test]
    fn a_wrong_token_is_refused() {
        let callers = Callers::from_config(&[config("h1", CallerRole::Assistant)], "x").unwrap();
        assert_eq!(
            callers.resolve(&bearer("guess")).unwrap_err().code,
            "token_unknown"
        );
        assert_eq!(
            callers.resolve(&HeaderMap::new()).unwrap_err().code,
            "token_required"
        );
    }
}
