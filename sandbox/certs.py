# SPDX-License-Identifier: Apache-2.0
"""The sandbox's certificate authority, the server's certificate and the kubeconfig files.

Everything is made anew at each start and lies below the sandbox's own directory; keys are readable by the owner only.
"""

import base64
import datetime
import ipaddress
import os

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _write(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def make(directory):
    """Writes ca.crt, server.crt and server.key; returns their paths."""
    os.makedirs(directory, exist_ok=True)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    start = datetime.datetime.utcnow() - datetime.timedelta(hours=1)
    end = start + datetime.timedelta(days=30)
    ca = (x509.CertificateBuilder().subject_name(_name("aliquot-sandbox-ca"))
          .issuer_name(_name("aliquot-sandbox-ca")).public_key(ca_key.public_key())
          .serial_number(x509.random_serial_number()).not_valid_before(start).not_valid_after(end)
          .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
          .add_extension(x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True,
                                       content_commitment=False, key_encipherment=False, data_encipherment=False,
                                       key_agreement=False, encipher_only=False, decipher_only=False), critical=True)
          .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
          .sign(ca_key, hashes.SHA256()))
    names = [x509.DNSName("localhost"), x509.DNSName("kubernetes.default.svc"),
             x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.IPAddress(ipaddress.ip_address("::1"))]
    cert = (x509.CertificateBuilder().subject_name(_name("kube-apiserver")).issuer_name(ca.subject)
            .public_key(key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(start).not_valid_after(end)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256()))
    paths = [os.path.join(directory, n) for n in ("ca.crt", "server.crt", "server.key")]
    _write(paths[0], ca.public_bytes(serialization.Encoding.PEM))
    _write(paths[1], cert.public_bytes(serialization.Encoding.PEM))
    _write(paths[2], key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                       serialization.NoEncryption()))
    return paths


def kubeconfig(path, server, ca_path, user, token):
    """Writes a kubeconfig with one context and a bearer token."""
    with open(ca_path, "rb") as file:
        authority = base64.b64encode(file.read()).decode()
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "sandbox",
              "clusters": [{"name": "sandbox", "cluster": {"server": server, "certificate-authority-data": authority}}],
              "users": [{"name": user, "user": {"token": token}}],
              "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": user,
                                                           "namespace": "default"}}]}
    _write(path, yaml.safe_dump(config, sort_keys=False).encode())
