"""The Django site of `test_second_registry.py`; run as a program it makes the tables, imported by gunicorn it serves.

What it keeps lies in the working directory.
"""

import os

import django
from django.conf import settings
from django.core.management import call_command
from django.urls import include, path

settings.configure(
    SECRET_KEY="of a registry that lives for one test",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=[
        "django.contrib.contenttypes",
        "django.contrib.auth",
        "rest_framework",
        "rest_framework.authtoken",
        "django_oci",
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}},
    CACHES={"default": {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": "cache"}},
    MIGRATION_MODULES={"django_oci": None},
    DATA_UPLOAD_MAX_MEMORY_SIZE=None,
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    DJANGO_OCI={
        "MEDIA_ROOT": "media",  # below the working directory: its models take no absolute one
        "DOMAIN_URL": os.environ["REGISTRY_URL"],
        "DISABLE_AUTHENTICATION": True,  # its challenge names no scheme, which the standard asks for
        "VIEW_RATE_LIMIT": "1000000/1d",
    },
)
django.setup()

urlpatterns = [path("", include("django_oci.urls", namespace="django_oci"))]

if __name__ == "__main__":
    call_command("migrate", run_syncdb=True, verbosity=0)
else:
    from django.core.wsgi import get_wsgi_application

    application = get_wsgi_application()
