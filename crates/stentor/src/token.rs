//! `stentor token`: makes a token for development. In production, users get their tokens from an issuer.

use crate::cli::TokenArgs;
use crate::config::Sources;
use crate::serve::environment;
use anyhow::{Context, anyhow, bail};
use serde_json::{Map, Value};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use stentor_auth::{Algorithm, SigningKey};
use stentor_control::{AuthOptions, IssuerOptions};

#[allow(clippy::print_stdout, clippy::print_stderr, reason = "the token is the requested output")]
pub(crate) fn run(args: &TokenArgs) -> anyhow::Result<ExitCode> {
    let (config, _) = Sources::default().file(&args.config).environment(environment()).load()?;
    let auth = config.auth_options().ok_or_else(|| anyhow!("{} has no [auth]", args.config.display()))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    println!("{}", token(args, &auth, now)?);
    eprintln!(
        "This token is for development. In production, your backend or identity provider makes the tokens."
    );
    Ok(ExitCode::SUCCESS)
}

fn token(args: &TokenArgs, auth: &AuthOptions, now: u64) -> anyhow::Result<String> {
    let issuer = issuer(args, auth)?;
    if args.ttl > auth.token_lifetime_max {
        bail!(
            "--ttl {:?} is longer than token_lifetime_max in [auth], {:?}",
            args.ttl,
            auth.token_lifetime_max
        );
    }
    let mut claims = Map::new();
    claims.insert("iss".into(), issuer.name.as_str().into());
    claims.insert("sub".into(), args.sub.as_str().into());
    claims.extend(issuer.audience.iter().map(|audience| ("aud".to_owned(), Value::from(audience.as_str()))));
    claims.insert("iat".into(), now.into());
    claims.insert("exp".into(), (now + args.ttl.as_secs()).into());
    claims.extend(args.claims.iter().cloned());
    Ok(signing_key(args, issuer)?.sign(&claims)?)
}

fn issuer<'a>(args: &TokenArgs, auth: &'a AuthOptions) -> anyhow::Result<&'a IssuerOptions> {
    let names: Vec<_> = auth.issuers.iter().map(|issuer| issuer.name.as_str()).collect();
    let names = names.join(", ");
    match (&args.issuer, auth.issuers.as_slice()) {
        (_, []) => bail!("the configuration has no [[auth.issuers]]"),
        (None, [only]) => Ok(only),
        (None, _) => bail!("name one of the issuers with --issuer: {names}"),
        (Some(name), all) => {
            let found = all.iter().find(|issuer| issuer.name == *name);
            found.ok_or_else(|| anyhow!("--issuer {name}: the configuration has {names}"))
        }
    }
}

fn signing_key(args: &TokenArgs, issuer: &IssuerOptions) -> anyhow::Result<SigningKey> {
    if let Some(path) = &args.private_key {
        if !issuer.algorithms.contains(&Algorithm::Es256) {
            bail!("--private-key signs with ES256, which is not among the algorithms of {}", issuer.name);
        }
        let pem = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        return SigningKey::es256(args.kid.as_deref(), &pem).with_context(|| path.display().to_string());
    }
    let keys = issuer
        .algorithms
        .iter()
        .flat_map(|algorithm| issuer.keys.iter().filter_map(|key| SigningKey::secret(key, *algorithm).ok()));
    let first = { keys }.next();
    first.ok_or_else(|| {
        anyhow!("{} has no secret in keys; give its private key for ES256 with --private-key", issuer.name)
    })
}
