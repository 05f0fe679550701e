# SPDX-License-Identifier: Apache-2.0
"""The image's bill of materials as SPDX 2.3 JSON: Aliquot with every file of the root, and the Debian packages that files are
from, by package URL. Pure: what is in it follows from the arguments alone."""

import hashlib
import json
import urllib.parse

PLACE = "usr/share/doc/aliquot/aliquot.spdx.json"  # in the image; it lists everything but itself
NONE = "NOASSERTION"


def digest(kind, data):
    return hashlib.new(kind, data).hexdigest()


def _files(root):
    return [{"SPDXID": f"SPDXRef-File-{number}", "fileName": f"./{name}", "copyrightText": NONE, "licenseConcluded": NONE,
             "checksums": [{"algorithm": kind.upper(), "checksumValue": digest(kind, entry.data)} for kind in ("sha1", "sha256")]}
            for number, (name, entry) in enumerate((n, e) for n, e in root.items() if e.data is not None)]


def _package(package, distribution):
    url = (f"pkg:deb/{distribution}/{urllib.parse.quote(package.name)}@{urllib.parse.quote(package.version)}"
           f"?arch={package.architecture}")
    return {"SPDXID": f"SPDXRef-Package-{package.name.replace('+', '-plus')}", "name": package.name, "versionInfo": package.version,
            "supplier": "Organization: Debian", "downloadLocation": NONE, "filesAnalyzed": False, "licenseConcluded": NONE,
            "licenseDeclared": NONE, "copyrightText": NONE,
            "sourceInfo": f"built from the source package {package.source} {package.source_version}; "
                          f"its licenses: /usr/share/doc/{package.name}/copyright",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url}]}


def make(root, packages, facts):
    """The document as bytes. facts: version, revision, source, licenses, created (RFC 3339), distribution ("debian")."""
    files = _files(root)
    sums = "".join(sorted(f["checksums"][0]["checksumValue"] for f in files))
    main = {"SPDXID": "SPDXRef-Aliquot", "name": "aliquot", "versionInfo": facts["version"], "supplier": "Organization: Aliquot",
            "downloadLocation": NONE, "homepage": facts["source"], "primaryPackagePurpose": "CONTAINER", "filesAnalyzed": True,
            "packageVerificationCode": {"packageVerificationCodeValue": digest("sha1", sums.encode())},
            "licenseConcluded": NONE, "licenseDeclared": facts["licenses"], "copyrightText": NONE,
            "sourceInfo": f"revision {facts['revision']}"}
    listed = [_package(p, facts["distribution"]) for p in packages]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", main["SPDXID"])]
    relations += [(main["SPDXID"], "CONTAINS", f["SPDXID"]) for f in files]
    relations += [(main["SPDXID"], "DEPENDS_ON", p["SPDXID"]) for p in listed]
    document = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
                "name": f"aliquot-{facts['version']}",
                "creationInfo": {"created": facts["created"], "creators": ["Tool: aliquot-tools-image"]},
                "packages": [main, *listed], "files": files,
                "relationships": [dict(zip(("spdxElementId", "relationshipType", "relatedSpdxElement"), r)) for r in relations]}
    # The namespace has to be this document's alone, and the same when it is made again.
    known = digest("sha256", json.dumps(document, sort_keys=True).encode())
    document["documentNamespace"] = f"{facts['source']}/spdx/{document['name']}-{known}"
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()
