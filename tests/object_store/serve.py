"""Starts moto's S3 on a free port of loopback, with a user, keys and a bucket, and runs a program beside it."""
import json
import os
import subprocess
import sys

# What comes after these calls has to be signed with keys that exist.
SETUP_CALLS = 4
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = str(SETUP_CALLS)

import boto3  # noqa: E402: moto reads the environment when it is imported
from moto.server import ThreadedMotoServer  # noqa: E402

BUCKET = "deepinfer-test"


def main():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = "http://%s:%d" % (host, port)
    place = {"endpoint_url": url, "region_name": "us-east-1", "aws_access_key_id": "setup", "aws_secret_access_key": "setup"}
    iam = boto3.client("iam", **place)
    iam.create_user(UserName="tester")
    rules = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    iam.put_user_policy(UserName="tester", PolicyName="all", PolicyDocument=json.dumps(rules))
    key = iam.create_access_key(UserName="tester")["AccessKey"]
    boto3.client("s3", **place).create_bucket(Bucket=BUCKET)
    environment = {**os.environ, "AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
                   "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"], "DEEPINFER_TEST_BUCKET": BUCKET}
    try:
        return subprocess.run(sys.argv[1:], env=environment).returncode
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
